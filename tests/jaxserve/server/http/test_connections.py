"""Incomplete, early-answered and pipelined requests neither occupy a connection nor affect other requests."""

import json
import re
import socket
import time
from contextlib import contextmanager

import pytest

from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running, until

KEY = "key"
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    llm = fake_llm()
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(0.01) or collect(ticket)
    with running(llm, api_key=KEY, receive_timeout_s=0.5) as server:
        yield server


def post(body, *headers, key=KEY, path="/v1/completions"):
    raw = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}", "Content-Type: application/json",
        f"Content-Length: {len(raw)}", *headers,
    ]  # fmt: skip
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + raw


@contextmanager
def connected(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        yield connection


def received(connection, count):
    """The bytes received until there are `count` responses, or until the connection is closed."""
    got = b""
    while got.count(b"HTTP/1.1 ") < count and (part := connection.recv(1 << 16)):
        got += part
    return got


CHUNKED = b"POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "status", "more"),
    [
        (WHOLE, 200, b"\r\n"),
        (post({}, key="wrong")[:-1], 401, b""),
        (post({"prompt": "x" * 100}, key="wrong")[:-90], 401, b"x"),
        (CHUNKED, 405, b"1\r\nx\r\n"),
        (WHOLE + WHOLE, 200, b"\r\nGE"),
    ],
)
def test_no_early_response_keeps_a_connection_open(server, sent, status, more):
    with connected(server) as connection:
        connection.sendall(sent)
        assert received(connection, 1 + (sent == WHOLE + WHOLE)).startswith(b"HTTP/1.1 %d " % status)
        for byte in more:
            connection.sendall(bytes([byte]))
        while connection.recv(1 << 16):  # fails by its own timeout
            pass


def test_a_connection_is_reused_after_a_body_that_was_not_read(server):
    body = post({"prompt": "x" * 100_000}, key="wrong")
    with connected(server) as connection:
        for _ in range(2):
            connection.sendall(body[:-90])
            assert b" 401 " in received(connection, 1)
            connection.sendall(body[-90:])
        connection.sendall(post({"prompt": "x", "max_tokens": 1}))
        assert b" 200 " in received(connection, 1)


def test_a_slow_response_is_not_cut_off(server):
    asked = post({"prompt": "x", "max_tokens": 80, "ignore_eos": True})
    with connected(server) as connection:
        connection.sendall(asked)
        assert b" 200 " in received(connection, 1)
        connection.sendall(asked + asked[:9])  # its timer starts when no response is in progress
        assert b" 200 " in received(connection, 1)
        connection.sendall(asked[9:])
        assert b" 200 " in received(connection, 1)


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
WEBSOCKET = ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")


@pytest.mark.parametrize("headers", [H2C, WEBSOCKET])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_request_to_upgrade_is_answered_over_http(server, headers, size):
    asked = post({"prompt": "x", "max_tokens": 1}, *headers)
    bare = WHOLE[:-2] + "".join(f"{line}\r\n" for line in headers).encode() + b"\r\n"
    with connected(server) as connection:
        for raw, count in ((asked, 1), (bare, 1), (asked + bare + asked, 3)):
            for start in range(0, len(raw), size):
                connection.sendall(raw[start : start + size])
            got = received(connection, count)
            assert got.count(b"HTTP/1.1 200 ") == count, got


def test_a_client_that_pipelines_and_disconnects_aborts_its_requests(server):
    asked, meters = {"prompt": "x", "max_tokens": 90, "ignore_eos": True}, server.state.engine.metrics
    before = meters.finished.copy()
    with connected(server) as connection:
        connection.sendall(post({**asked, "stream": True}) + post(asked))
        connection.recv(100)
    until(lambda: meters.finished - before)
    assert meters.finished - before == {"abort": 1}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("reads", [False, True])
def test_a_client_that_reads_nothing_is_disconnected_and_a_slow_one_is_not(reads):
    """The response has eight megabytes, more than the kernel's buffers."""
    with running(fake_llm(), send_timeout_s=0.8) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        host, port = server.url.removeprefix("http://").split(":")
        connection.connect((host, int(port)))
        connection.settimeout(20)
        connection.sendall(post({"prompt": "x" * 1_000_000, "return_token_strs": True}, path="/tokenize"))
        begin = connection.recv(1 << 12)
        length = int(re.search(rb"content-length: (\d+)", begin)[1]) + begin.index(b"\r\n\r\n") + 4
        num_read = len(begin)
        for i in range(24):  # three times the timeout
            time.sleep(0.1)
            while reads and num_read < min(180_000 * (i + 1), length) and (part := connection.recv(1 << 17)):
                num_read += len(part)
        while part := connection.recv(1 << 17):
            num_read += len(part)
        assert (num_read == length) == reads
