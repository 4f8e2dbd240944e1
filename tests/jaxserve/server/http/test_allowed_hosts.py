"""The names under which a server answers, against web pages that rebind theirs to its address."""

import socket
from urllib.parse import urlsplit

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.server.http.allowed_hosts import AllowedHosts
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

OWN = [
    "localhost",
    "LOCALHOST.:8000",
    "app.localhost:1",
    "127.0.0.1",
    "127.8.9.1:8000",
    "[::1]",
    "[0:0:0:0:0:0:0:1]:80",
]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost"]
FOREIGN += ["0.0.0.0:8000", "10.0.0.5", "[fe80::1]", "2130706433", "128.0.0.1"]
INVALID = ["", ":8000", "a b", "a@b", "a/b", "a:b", "[::1", "::1", "a,b:1:2", "a\x00", "é"]


def status_of(host, /, *, is_public=False, **options):
    """200, or the status with which a Host header is refused; None sends no header."""
    lines = [] if host is None else [host] if isinstance(host, str) else host
    headers = [(b"host", line.encode("latin-1")) for line in lines]
    scope = {"type": "http", "http_version": options.pop("http_version", "1.1"), "headers": headers}
    try:
        AllowedHosts(ServerConfig(**options)).check(scope, is_public=is_public)
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.0.0.9", "Localhost"])
def test_a_loopback_address_serves_loopback_names_only(address):
    assert {status_of(host, host=address) for host in OWN} == {200}
    assert {status_of(host, host=address) for host in FOREIGN} == {403}
    assert {status_of(host, host=address, is_public=True) for host in FOREIGN} == {403}


def test_names_that_are_allowed_come_on_top():
    allowed = ("chat.example", "*.lan.example", "[FD00::5]")
    for host in [*OWN, "Chat.Example:443", "a.lan.example", "a.b.lan.example.", "[fd00:0::5]:1"]:
        assert status_of(host, allowed_host=allowed) == 200, host
    for host in [*FOREIGN, "lan.example", "xlan.example", "x.chat.example", "[fd00::6]"]:
        assert status_of(host, allowed_host=allowed) == 403, host
    assert {status_of(host, allowed_host="*") for host in FOREIGN} == {200}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.5", "gpu-box"])
def test_other_addresses_serve_any_name_unless_some_are_allowed(address):
    assert {status_of(host, host=address) for host in [*OWN, *FOREIGN]} == {200}
    only = {"host": address, "allowed_host": ("chat.example",)}
    assert status_of("chat.example", **only) == 200
    assert {status_of(host, **only) for host in [*OWN, *FOREIGN]} == {403}
    assert {status_of(host, **only, is_public=True) for host in FOREIGN} == {200}  # probes name a pod's address


def test_a_unix_socket_serves_any_name():
    assert {status_of(host, uds="socket", allowed_host="x") for host in FOREIGN} == {200}


@pytest.mark.parametrize("options", [{}, {"host": "0.0.0.0"}, {"uds": "socket"}, {"allowed_host": "*"}])
def test_a_request_has_one_valid_host_header(options):
    for host in [None, ["localhost", "localhost"], ["localhost", "evil.example"], *INVALID]:
        assert status_of(host, **options) == 400, host
        assert status_of(host, is_public=True, **options) == 400, host
    assert status_of(None, http_version="1.0", **options) == 200  # probes of load balancers
    assert status_of(["localhost"] * 2, http_version="1.0", **options) == 400


@pytest.mark.parametrize(
    "name", ["", "http://a.example", "a.example:80", "a.example/", "*.*.example", "a*", "*a", "a b"]
)
def test_an_allowed_host_is_a_name_without_port(name):
    with pytest.raises(ConfigError, match="allowed_host") as caught:
        ServerConfig(allowed_host=("good.example", name))
    assert caught.value.param == "allowed_host"


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


def answer_to(server, *lines):
    """The raw response to a request of these header lines."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode())
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    return received.decode()


def test_the_server_refuses_a_rebound_name_and_names_the_option(server):
    port = urlsplit(server.url).port
    for path in ("/", "/health", "/v1/models", "/live", "/metrics", "/nothing"):
        refused = answer_to(server, f"GET {path} HTTP/1.1", f"Host: rebound.example:{port}")
        assert refused.startswith("HTTP/1.1 403 ")
        assert "--allowed-host rebound.example" in refused
        assert '"code":"host_not_allowed"' in refused
    assert answer_to(server, "GET /v1/models HTTP/1.1", f"Host: localhost:{port}").startswith("HTTP/1.1 200 ")


def test_the_server_refuses_a_missing_and_a_second_host(server):
    for lines in ([], ["Host: localhost", "host: localhost"], ["Host: localhost, rebound.example"]):
        assert answer_to(server, "GET /v1/models HTTP/1.1", *lines).startswith("HTTP/1.1 400 ")
    assert " 200 " in answer_to(server, "GET /health HTTP/1.0").splitlines()[0]


def test_no_response_leads_to_another_host():
    with running(fake_llm(), allowed_host="*", root_path="/api") as server, server.http() as client:
        for path in ("/health/", "/api/health/", "/v1/models/", "/v1/completions/", "/docs/"):
            answer = client.get(path, headers={"Host": "rebound.example"}, follow_redirects=False)
            assert "location" not in answer.headers
            assert answer.status_code in (404, 405), path
