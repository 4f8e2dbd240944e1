"""A relay between a client and the server that falsifies answers: the controls of `scripts/prove clients`."""

import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY")
PER_CONNECTION = {"connection", "transfer-encoding", "content-length"}
EVENT = b"data: "
FALSIFIED = "1000"  # appended to texts; log-probabilities are as much too small
Fault = Callable[[int, Any], tuple[int, Any]]  # of the status and the JSON of an answer


def other_texts(status: int, answer: Any) -> tuple[int, Any]:
    return status, _altered(answer)


def without_created(status: int, answer: Any) -> tuple[int, Any]:
    """Drops a field that OpenAI's schema requires."""
    return status, {name: value for name, value in answer.items() if name != "created"}


def teapot(status: int, answer: Any) -> tuple[int, Any]:
    """Answers with a status that no API description has."""
    return 418 if status == 200 else status, answer


def _altered(value: Any) -> Any:
    if isinstance(value, list):
        return [_altered(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _altered(each) for name, each in value.items()}
    changed |= {name: value[name] + FALSIFIED for name in ("content", "text") if isinstance(value.get(name), str)}
    if "token_logprobs" in value:
        changed["token_logprobs"] = [each and each - 1000 for each in value["token_logprobs"]]
    return changed


@contextmanager
def relay(url: str, fault: Fault) -> Iterator[str]:
    """Yields an address that forwards all requests to `url` and applies `fault` to JSON answers and events of routes
    under /v1."""
    server = _Server(("127.0.0.1", 0), _handler(urlsplit(url).netloc, fault))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # clients connect many times at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that has left
            super().handle_error(request, client_address)


def _handler(address: str, fault: Fault) -> type[BaseHTTPRequestHandler]:
    def forward(self: BaseHTTPRequestHandler) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        connection = http.client.HTTPConnection(address, timeout=300)
        connection.request(self.command, self.path, sent or None, headers)
        answer = connection.getresponse()
        status, body = answer.status, answer.read()
        connection.close()
        kind = answer.headers.get_content_type()
        if body and self.path.startswith("/v1/") and kind in ("application/json", "text/event-stream"):
            status, body = _falsified(status, body, fault)
        self.send_response(status)
        for name, value in answer.headers.items():
            if name.lower() not in PER_CONNECTION | {"date", "server"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    quiet = {"protocol_version": "HTTP/1.1", "log_message": lambda *_: None}
    return type("Relay", (BaseHTTPRequestHandler,), quiet | {f"do_{method}": forward for method in METHODS})


def _falsified(status: int, body: bytes, fault: Fault) -> tuple[int, bytes]:
    if not body.startswith((EVENT, b":")):
        status, answer = fault(status, json.loads(body))
        return status, json.dumps(answer).encode()
    lines = []
    for line in body.split(b"\n"):
        if line.startswith(EVENT + b"{"):
            line = EVENT + json.dumps(fault(status, json.loads(line.removeprefix(EVENT)))[1]).encode()
        lines.append(line)
    return status, b"\n".join(lines)
