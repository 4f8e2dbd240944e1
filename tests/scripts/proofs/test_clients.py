"""The proof of outside clients: its relay falsifies answers, its checks count, and a client without environment has not
run."""

import http.client
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts.clients.checks import Checks, largest_difference
from scripts.proofs import clients
from scripts.proofs.helpers import client_environments, client_runs
from scripts.proofs.helpers.client_relay import FALSIFIED, other_texts, relay, teapot, without_created
from tests.repository.modules import ROOT

SCRIPTS = ROOT / "scripts" / "clients"
ANSWER = {
    "created": 1,
    "choices": [{"text": "a", "logprobs": {"token_logprobs": [None, -1.0]}, "finish_reason": "stop"}],
}
STREAM = b'data: {"created": 1, "choices": [{"delta": {"content": "b"}}]}\n\ndata: [DONE]\n\n'


@pytest.fixture(scope="module")
def url():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            is_stream = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("stream")
            body = STREAM if is_stream else json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask(url: str, **body: object) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", "/v1/completions", json.dumps(body))
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_relay_falsifies_whole_answers_and_streams(url):
    with relay(url, other_texts) as through:
        status, text = ask(through)
        choice = json.loads(text)["choices"][0]
        assert (status, choice["text"]) == (200, "a" + FALSIFIED)
        assert choice["logprobs"]["token_logprobs"] == [None, -1001.0]
        assert choice["finish_reason"] == "stop"
        *_, streamed = ask(through, stream=True)
        assert f'"content": "b{FALSIFIED}"' in streamed
        assert streamed.endswith("data: [DONE]\n\n")
    with relay(url, without_created) as through:
        assert '"created"' not in ask(through)[1] + ask(through, stream=True)[1]
    with relay(url, teapot) as through:
        assert ask(through)[0] == 418


def test_checks_keep_what_differs(url):
    checks = Checks(url, url, "key", False, part="texts")
    checks.equal("same", 1, 1)
    checks.equal("other", [1], [2])
    checks.raises("division", ZeroDivisionError, "by zero", lambda: 1 / 0)
    checks.raises("no division", ZeroDivisionError, "by zero", lambda: 1)
    assert checks.failures == ["texts: other: [1] instead of [2]", "texts: no division: no error but 1"]
    assert checks.num_checks == {"texts": 4}
    assert checks.direct_texts(["x", "y"], max_tokens=1) == ["a", "a"]
    assert checks.direct_requests == [("/v1/completions", "POST")] * 2
    assert largest_difference([[1.0, 2.0]], [[1.0, 2.5]]) == 0.5
    assert largest_difference([[1.0]], [[1.0, 2.5]]) > 1e9


def test_a_client_that_cannot_be_installed_has_not_run(monkeypatch, tmp_path):
    monkeypatch.setattr(client_environments, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(client_environments.sys, "executable", "/bin/false")
    found = client_runs.run(clients.CLIENTS[0], "http://127.0.0.1:1", "key")
    assert found.not_run == "exit code 1"
    assert clients.table([found])[-1] == "| openai | not run: exit code 1 | | | | | |"


@pytest.mark.parametrize("client", clients.CLIENTS, ids=lambda client: client.name)
def test_every_client_has_a_script_exact_pins_and_a_control(client):
    assert (SCRIPTS / f"{client.module}.py").exists()
    pins = (SCRIPTS / "requirements" / f"{client.name}.txt").read_text().splitlines()
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    assert any(client.name in control.clients for control in clients.CONTROLS)
