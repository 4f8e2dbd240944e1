"""The life of a server process, as load balancers and supervisors see it, from start to exit code."""

import asyncio
import json
import signal
import socket
import stat
import threading
from contextlib import suppress

import httpx2
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.server.app import make_app
from jaxserve.server.http.listener import Listener
from jaxserve.server.server_config import ServerConfig
from jaxserve.server.server_state import ServerState
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake
from tests.support.processes.server_process import FAKE, ServerProcess
from tests.support.tiny_engines import flags_of

TINY = {"load_format": "dummy", "max_model_len": 64, "max_num_seqs": 2, "max_num_batched_tokens": 16, "num_pages": 40}
LONG = {"prompt": "x", "max_tokens": 90, "ignore_eos": True}  # two seconds of the slow server


class Stream:
    """A stream that is read in its own thread. begun: set when its first chunk has arrived."""

    def __init__(self, client):
        self.begun, self.lines, self._client = threading.Event(), [], client
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        assert self.begun.wait(60)

    def close(self):
        """Wait for the end of the stream."""
        self._thread.join()

    def _read(self):
        with (
            suppress(httpx2.TransportError),
            self._client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer,
        ):
            for line in answer.iter_lines():
                if line:
                    self.lines.append(line)
                    self.begun.set()

    def end(self):
        """The last event before the end."""
        self._thread.join()
        assert self.lines[-1] == "data: [DONE]"
        return json.loads(self.lines[-2].removeprefix("data: "))


def test_a_server_is_unhealthy_until_it_is_ready_and_ends_after_a_signal(monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")  # as in tests/conftest.py
    with ServerProcess(str(checkpoint("llama3")), *flags_of(TINY)) as server, server.client() as client:
        answer = client.get("/health")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "starting")
        early = client.post("/v1/completions", json={"prompt": [1]})
        assert (early.status_code, "retry-after" in early.headers) == (503, True)
        assert client.get("/version").status_code == 200
        server.until("ready after")
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").json()["data"][0]["id"] == checkpoint("llama3").name
        body = {"prompt": [1, 2, 3], "max_tokens": 5, "ignore_eos": True}
        assert client.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] == 5
        server.send(signal.SIGTERM)
        assert server.exit_code() == 0
    assert "Traceback" not in server.log


def test_after_a_signal_running_requests_finish_and_new_ones_are_refused():
    with ServerProcess("slow", command=FAKE) as server, server.client() as client, server.client() as other:
        server.until("ready after")
        stream = Stream(client)
        server.send(signal.SIGTERM)
        server.until("draining: 1 requests")
        health = other.get("/health")
        assert (health.status_code, health.json()["error"]["code"]) == (503, "draining")
        refused = other.post("/v1/completions", json={"prompt": "x"})
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert stream.end()["choices"][0]["finish_reason"] == "length"
        assert server.exit_code() == 0
    assert "Traceback" not in server.log


def test_a_second_signal_ends_running_requests_of_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    with ServerProcess("slow", "--uds", str(path), command=FAKE) as server:
        server.until("ready after")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with server.client(uds=str(path)) as client:
            stream = Stream(client)
            server.send(signal.SIGTERM)
            server.until("draining: 1 requests")
            server.send(signal.SIGINT)
            assert stream.end()["error"]["type"] == "ServiceUnavailableError"
        assert server.exit_code() == 0
    assert not path.exists()
    assert "Traceback" not in server.log


@pytest.mark.thorough
def test_without_a_shutdown_timeout_running_requests_are_aborted():
    with ServerProcess("slow", "--shutdown-timeout", "0", command=FAKE) as server, server.client() as client:
        server.until("ready after")
        stream = Stream(client)
        server.send(signal.SIGTERM)
        assert stream.end()["error"]["type"] == "ServiceUnavailableError"
        assert server.exit_code() == 0
    assert "1 requests are aborted" in server.log


def test_a_crash_is_reported_to_all_requests_and_ends_the_process_with_its_reason():
    with ServerProcess("crash", command=FAKE) as server, server.client() as client:
        server.until("ready after")
        stream = Stream(client)
        assert stream.end()["error"]["code"] == "engine_dead"
        assert server.exit_code() == 1
    assert "Out of memory while trying to allocate" in server.log.splitlines()[-1]


def test_a_model_that_does_not_fit_ends_the_process_with_its_reason():
    with ServerProcess("no memory", command=FAKE) as server:
        assert server.exit_code() == 1
    assert "Out of memory while trying to allocate" in server.log.splitlines()[-1]


def test_a_server_whose_listener_fails_ends_with_its_reason():
    with ServerProcess("deaf", command=FAKE) as server:
        assert server.exit_code() == 1
    assert "the server has stopped listening: RuntimeError('the socket is gone')" in server.log
    assert "Traceback" not in server.log


def test_a_socket_in_use_is_refused_and_a_dead_server_s_is_replaced(tmp_path):
    path = tmp_path / "socket"
    config = ServerConfig(uds=str(path))
    app = make_app(ServerState(config, ("fake",)))
    first = Listener(app, config)
    with pytest.raises(OSError, match="another server is listening there"):
        Listener(app, config)
    path.unlink()
    second = Listener(app, config)
    first.should_exit = True
    asyncio.run(first.listen())
    assert path.is_socket()  # the second one's
    second._socket.close()  # as a kill does
    third = Listener(app, config)
    third.should_exit = True
    asyncio.run(third.listen())
    assert not path.exists()


def test_a_host_that_does_not_exist_is_named(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match=r"--host nowhere\.test is neither an address nor a known host name: Name or"):
        Listener(lambda *_: None, ServerConfig(host="nowhere.test"))


@pytest.mark.thorough
def test_a_second_signal_ends_a_server_whose_step_hangs():
    with ServerProcess("hang", command=FAKE) as server, server.client() as client:
        server.until("ready after")
        stream = Stream(client)
        server.send(signal.SIGTERM)
        server.until("draining: 1 requests")
        server.send(signal.SIGTERM)
        assert server.exit_code(20) == 0  # its step takes ten minutes
        assert "exiting without it" in server.log
        stream.close()


def test_a_signal_ends_a_server_that_is_still_loading():
    with ServerProcess("long load", command=FAKE) as server, server.client() as client:
        assert client.get("/health").status_code == 503
        server.send(signal.SIGTERM)
        assert server.exit_code() == 0


def test_files_that_are_no_keys_are_named(tmp_path):
    (tmp_path / "bad.pem").write_text("no key")
    for file in ("bad.pem", "none.pem"):
        path = str(tmp_path / file)
        with pytest.raises(ConfigError, match="not usable for TLS") as refused:
            Listener(lambda *_: None, ServerConfig(port=0, ssl_keyfile=path, ssl_certfile=path))
        assert refused.value.param == "ssl_certfile"


def test_user_errors_end_with_code_2_and_one_sentence():
    check_mistake(["serve", "no-such-model", "--port", "0"], "no-such-model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check_mistake(["serve", "x", "--port", str(port)], f"cannot listen on 127.0.0.1:{port}")
