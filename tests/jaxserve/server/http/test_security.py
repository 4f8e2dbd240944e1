"""Access by key, and the limits on a request's size and arrival time."""

import base64
import socket
import time

import pytest
from starlette.datastructures import Headers

from jaxserve.core.errors import ConfigError
from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

KEY, OTHER, ADMIN = "client-key", "other-key", "admin-key"
BODY = {"prompt": "x", "max_tokens": 1}


@pytest.fixture(scope="module")
def server():
    limits = {"max_body_bytes": 4096, "max_header_bytes": 4096, "receive_timeout_s": 0.5}
    with running(fake_llm(), api_key=(KEY, OTHER), admin_key=ADMIN, **limits) as server:
        yield server


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def basic(key):
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{key}".encode()).decode()}


def x_key(key):
    return {"X-API-Key": key}


def routes(app):
    """Method and path of every route, inside the middleware."""
    paths = app.openapi()["paths"]
    return [(method.upper(), path.replace("{name}", "x")) for path, found in paths.items() for method in found]


def test_every_route_but_those_of_health_needs_the_key(server):
    from jaxserve.server.app import make_app

    found = routes(make_app(server.state)._app)
    assert len(found) >= 10
    with server.http() as client:
        for method, path in [*found, ("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/nothing")]:
            status = client.request(method, path).status_code
            is_public = path in ("/health", "/ping")
            assert status == (200 if is_public else 401), (method, path)
            for wrong in (bearer("x"), basic("x"), {"Authorization": KEY}, x_key("x"), x_key(""), {}):
                if not is_public:
                    assert client.request(method, path, headers=wrong).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [bearer(KEY), bearer(OTHER), bearer(ADMIN), basic(KEY), x_key(KEY), x_key(ADMIN), bearer(KEY) | x_key(KEY)],
)
def test_a_valid_key_is_accepted(server, headers):
    assert server.post("/v1/completions", BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [*bearer(KEY).items(), *x_key("wrong").items()], [*bearer("wrong").items(), *x_key(KEY).items()],
        [*bearer(KEY).items(), *x_key(OTHER).items()], [*bearer(KEY).items(), *x_key(ADMIN).items()],
        [*bearer(KEY).items(), *bearer("wrong").items()], [*x_key("wrong").items(), *x_key(KEY).items()],
        [("Authorization", "Digest x"), *x_key(KEY).items()],
    ],
)  # fmt: skip
def test_headers_with_different_keys_are_refused(server, headers):
    for path in ("/v1/completions", "/reset_prefix_cache"):
        refused = server.post(path, BODY, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert "different keys" in refused.json()["error"]["message"]


def test_one_key_is_one_client_in_either_header():
    keys = ApiKeys(ServerConfig(api_key=(KEY, OTHER)))
    names = [keys.check(Headers(headers)) for headers in (bearer(KEY), x_key(KEY), basic(KEY), x_key(OTHER))]
    assert names[0] == names[1] == names[2] != names[3]


@pytest.mark.parametrize(
    "key", ["ключ", "clé à", "\udce9"]
)  # the last one: a byte that is not UTF-8, as a surrogate escape
def test_a_key_may_contain_any_characters(key):
    raw, config = key.encode("utf-8", "surrogateescape"), ServerConfig(api_key=key, admin_key=key)
    both = [(b"authorization", b"Bearer " + raw), (b"x-api-key", raw)]
    for name, sent in [*both, (b"authorization", b"basic  " + base64.b64encode(b"me:" + raw))]:
        assert ApiKeys(config).check(Headers(raw=[(name, sent)]))
        with pytest.raises(ApiError, match="wrong"):
            ApiKeys(config).check(Headers(raw=[(name, sent[:-1])]))
    for header in both:
        ApiKeys(config).check_admin(Headers(raw=[header]))


def test_public_routes_need_no_key_whether_a_proxy_strips_the_root_or_not():
    with running(fake_llm(), api_key=KEY, root_path="/api", public_metrics=True) as server:
        for root in ("", "/api"):
            assert [server.get(root + path).status_code for path in ("/health", "/metrics")] == [200, 200]
            assert server.get(f"{root}/v1/models").status_code == 401
            assert server.get(f"{root}/v1/models", headers=bearer(KEY)).status_code == 200
        assert server.get("/openapi.json", headers=bearer(KEY)).json()["servers"] == [{"url": "/api"}]
        for path in ("/api", "/apihealth", "/api//health", "/api/api/health", "/v1/models/api/health"):
            assert server.get(path).status_code == 401


def test_administrative_routes_need_the_admin_key(server):
    for path in ("/reset_prefix_cache", "/start_profile", "/stop_profile"):
        assert server.post(path, {}, headers=bearer(KEY)).status_code == 401
        assert (
            server.post(path, {}, headers=basic(ADMIN)).status_code == 401
        )  # browsers attach Basic to any page's requests
        assert server.post(path, {}, headers=x_key(KEY)).status_code == 401
        assert server.post(path, {}, headers=basic(ADMIN) | x_key(ADMIN)).status_code == 401
    for headers in (bearer(ADMIN), x_key(ADMIN)):
        assert server.post("/reset_prefix_cache", {}, headers=headers).json() == {"success": True}
    assert server.post("/stop_profile", {}, headers=bearer(ADMIN)).status_code == 400


def test_without_an_admin_key_administrative_routes_are_off():
    with running(fake_llm()) as server:
        assert server.post("/reset_prefix_cache", {}).status_code == 403
        assert server.post("/v1/completions", BODY).status_code == 200


def test_keys_are_in_no_error_and_no_repr(server):
    assert KEY not in repr(server.state)
    assert KEY not in server.post("/v1/completions", {"prompt": KEY * 100}, headers=bearer("wrong")).text


def test_long_bodies_are_refused_with_or_without_content_length(server):
    raw = b'{"prompt": "' + b"x" * 5000 + b'"}'
    headers = {"Content-Type": "application/json", **bearer(KEY)}
    with server.http() as client:
        assert client.post("/v1/completions", content=raw, headers=headers).status_code == 413
        parts = (raw[i : i + 1000] for i in range(0, len(raw), 1000))  # no Content-Length
        assert client.post("/v1/completions", content=parts, headers=headers).status_code == 413


def test_many_or_long_headers_are_refused(server):
    with server.http() as client:
        assert client.get("/health", headers={"X-Long": "x" * 5000}).status_code in (400, 431)
        assert client.get("/health", headers={f"X-{i}": "x" for i in range(300)}).status_code in (400, 431)


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/completions HTTP/1.1\r\nX-Slow: ", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"]
)
def test_a_connection_that_sends_no_request_is_closed(server, sent):
    with _connected(server) as connection:
        connection.sendall(sent)
        started_s = time.monotonic()
        while connection.recv(4096):
            pass
        assert time.monotonic() - started_s < 20


def test_endless_headers_are_cut_off(server):
    with _connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nX-Endless: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            _send_for_ever(connection)


@pytest.mark.parametrize("piece", [b"x: y\r\n" * 200, b"z" * 1000])
@pytest.mark.parametrize("key", [KEY, "wrong"])
def test_endless_trailers_are_cut_off(server, piece, key):
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: "
    with _connected(server) as connection:
        connection.sendall(head.encode())
        with pytest.raises(OSError, match=r"reset|pipe"):
            _send_for_ever(connection, piece)


def test_a_body_in_many_small_chunks_is_read(server):
    raw = b'{"prompt": "x",' + b" " * 3000 + b'"max_tokens": 1}'
    headers = {"Content-Type": "application/json", **bearer(KEY)}
    with server.http() as client:
        parts = (raw[i : i + 1] for i in range(len(raw)))  # their framing is longer than the limit on headers
        assert client.post("/v1/completions", content=parts, headers=headers).status_code == 200


def test_a_body_that_does_not_arrive_times_out(server):
    with _connected(server) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in connection.recv(4096)


def test_the_body_of_a_request_without_the_key_is_not_read(server):
    with _connected(server) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n")
        assert b" 401 " in connection.recv(4096)


def test_pages_of_other_origins_may_call_only_if_allowed():
    origin = {"Origin": "http://elsewhere.example"}
    with running(fake_llm()) as server:
        assert "access-control-allow-origin" not in server.post("/v1/completions", BODY, headers=origin).headers
    with running(fake_llm(), allowed_origins=("http://elsewhere.example",), api_key=KEY) as server:
        asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        with server.http() as client:
            assert client.request("OPTIONS", "/v1/completions", headers=asked).status_code == 200
        refused = server.post("/v1/completions", BODY, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "http://elsewhere.example"


def test_request_ids_are_echoed_or_generated(server):
    with server.http() as client:
        assert client.get("/health", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
        made = client.get("/health", headers={"X-Request-Id": "a b\tc"}).headers["x-request-id"]
        assert len(made) == 32


def test_clients_templates_are_off_by_default_and_limited_otherwise():
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    endless = "{% for i in range(99999999) %}x{% endfor %}"
    with running(fake_llm(), trust_request_chat_template=True) as server:
        own = server.post("/v1/chat/completions", {**chat, "chat_template": "{{ messages[0].content }}"}).json()
        assert own["usage"]["prompt_tokens"] == 2
        for template in (escape, endless, "/etc/passwd", "{{", "{% include '/etc/passwd' %}"):
            answer = server.post("/v1/chat/completions", {**chat, "chat_template": template})
            assert answer.status_code == 400, template
            assert "root:" not in answer.text


def test_prefixes_are_shared_within_one_key_only():
    prompt = {"prompt": "abcdefgh" * 4, "max_tokens": 1}
    with running(fake_llm_with_cache(), api_key=(KEY, OTHER), salt_by_key=True) as server:

        def cached(key):
            usage = server.post("/v1/completions", prompt, headers=bearer(key)).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        assert [cached(KEY), cached(OTHER), cached(KEY), cached(OTHER)] == [0, 0, 28, 28]


def test_long_salts_of_one_key_that_differ_at_their_ends_share_nothing():
    with running(fake_llm_with_cache(), api_key=(KEY, OTHER), salt_by_key=True) as server:

        def cached(key, salt):
            prompt = {"prompt": "abcdefgh" * 4, "max_tokens": 1, "cache_salt": salt}
            usage = server.post("/v1/completions", prompt, headers=bearer(key)).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        one, other = "s" * 127 + "a", "s" * 127 + "b"
        assert [cached(KEY, one), cached(KEY, other), cached(OTHER, one), cached(KEY, one)] == [0, 0, 0, 28]


def fake_llm_with_cache():
    return fake_llm(prefix_eviction="lru")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 70000), ("port", -1), ("port", "8000"), ("api_key", [""]), ("api_key", 5), ("admin_key", ""),
        ("max_body_bytes", 0), ("receive_timeout_s", 0), ("stall_timeout_s", float("nan")), ("shutdown_timeout", -1),
        ("generation_config", "vllm"), ("log_level", "loud"), ("trust_request_chat_template", "yes"),
        ("ssl_keyfile", "key.pem"), ("default_chat_template_kwargs", [1]), ("request_timeout_s", 0), ("host", ""),
        ("served_model_name", [1]), ("salt_by_key", 1),
        ("root_path", "api"), ("root_path", "/api/"), ("root_path", "/"),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        ServerConfig(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        ("127.0.0.1", False), ("127.1.2.3", False), ("localhost", False), ("a.localhost", False), ("::1", False),
        ("0.0.0.0", True), ("::", True), ("host", True),
    ],
)  # fmt: skip
def test_which_addresses_are_exposed(host, is_open):
    assert ServerConfig(host=host).is_exposed == is_open


def _send_for_ever(connection, piece=b"x" * 1024):
    for _ in range(10_000):
        connection.sendall(piece)
        time.sleep(0.001)


def _connected(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)
