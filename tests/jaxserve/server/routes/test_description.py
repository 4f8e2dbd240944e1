"""/openapi.json describes every response: statuses, schemas, media types and keys."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

MESSAGES = [{"role": "user", "content": "a"}]
GETS = (
    "/v1/responses/resp_1",
    "/v1/responses/resp_1/input_items",
    "/v1/models",
    "/v1/models/fake",
    "/v1/models/other",
    "/health",
    "/ping",
    "/load",
    "/version",
    "/tokenizer_info",
)
POSTS: list[tuple[str, Any]] = [
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "logprobs": 1, "echo": True, "return_token_ids": True}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": True}),
    ("/v1/completions", {"prompt": "a" * 200}),
    ("/v1/completions", {"prompt": "a", "model": "other"}),
    ("/v1/completions", {"prompt": "a" * 3000}),
    ("/v1/completions", {"prompt": "abc", "max_tokens": 90, "queue_timeout_s": 1e-6}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, "logprobs": True, "top_logprobs": 1}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, "stream": True}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 1}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 2, "stream": True}),
    ("/v1/responses", {"input": "a", "previous_response_id": "resp_1"}),
    ("/v1/embeddings", {"input": "a"}),
    ("/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
    ("/v1/score", {"text_1": "a", "text_2": ["a", "b"]}),
    ("/v2/rerank", {"query": "a", "documents": ["a", "b"]}),
    ("/invocations", {"prompt": "a", "max_tokens": 1}),
    ("/invocations", {"input": "a", "max_output_tokens": 1}),
    ("/invocations", {"query": "a", "documents": ["a"]}),
    ("/invocations", []),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}),
    ("/detokenize", {"tokens": [97]}),
    ("/detokenize", {"tokens": [97000]}),
    ("/ping", {}),
    ("/reset_prefix_cache", {}),
]


def operation(described: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    pattern = "/v1/models/{name}" if path.startswith("/v1/models/") else path.replace("/resp_1", "/{response_id}")
    return described["paths"][pattern][method]


def check(described: dict[str, Any], answer: Any, method: str, path: str) -> None:
    """Its status and media type are described, and its JSON is as described."""
    response = operation(described, method, path)["responses"][str(answer.status_code)]
    contents = response.get("content", {})
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    if not media_type:
        assert (contents, answer.content) == ({}, b"")
        return
    schema = contents[media_type]["schema"]
    if media_type != "text/event-stream":
        check_instance(described, schema, json.loads(answer.text))
        return
    data_schema = schema["properties"]["data"]
    chunk, *ends = data_schema.get("anyOf", [data_schema])
    assert (chunk["contentMediaType"], ends) == ("application/json", [{"const": "[DONE]"}] if ends else [])
    for event in answer.text.removesuffix("\n\n").split("\n\n"):
        data = event.rpartition("data: ")[2]
        check_instance(described, schema, {"event": "message", "data": data})
        if data != "[DONE]" or not ends:
            check_instance(described, chunk["contentSchema"], json.loads(data))


def check_instance(described: dict[str, Any], schema: dict[str, Any], instance: Any) -> None:
    Draft202012Validator({**schema, "components": described["components"]}).validate(instance)


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(), admin_key="boss", max_body_bytes=2048) as server:
        yield server


@pytest.fixture(scope="module")
def described(server):
    return server.get("/openapi.json").json()


@pytest.mark.parametrize("path", GETS)
def test_answers_to_get_are_described(server, described, path):
    check(described, server.get(path), "get", path)


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_answers_to_post_are_described(server, described, path, body):
    check(described, server.post(path, body), "post", path)


def test_the_schema_of_every_stream_describes_one_event(described):
    """Schemathesis and other validators apply it to objects with the fields of an event."""
    contents = [
        each["responses"]["200"].get("content", {})
        for methods in described["paths"].values()
        for each in methods.values()
    ]
    schemas = [content["text/event-stream"]["schema"] for content in contents if "text/event-stream" in content]
    assert len(schemas) == 5
    for schema in schemas:
        check_instance(described, schema, {"event": "message", "data": "[DONE]"})
        with pytest.raises(ValidationError):
            check_instance(described, schema, "data: [DONE]\n\n")


def test_refusals_by_the_connection_are_described(server, described):
    path = "/v1/completions"
    with server.http() as client:
        found = [
            client.post(path, content=b"{", headers={"Content-Type": kind}) for kind in ("application/json", "a/b")
        ]
        found.append(client.post(path, json={}, headers={"X-Long": "a" * 70_000}))
    assert [answer.status_code for answer in found] == [400, 415, 431]
    for answer in found:
        check(described, answer, "post", path)


def test_overload_and_starting_are_described(described):
    statuses = set(operation(described, "post", "/v1/chat/completions")["responses"])
    assert statuses == set("200 400 403 404 408 413 415 429 431 500 503".split())


def test_keys_are_described():
    with running(fake_llm(), api_key=("secret",)) as server:
        headers = {"Authorization": "Bearer secret"}
        described = server.get("/openapi.json", headers=headers).json()
        schemes = described["components"]["securitySchemes"]
        assert {(each["type"], each.get("scheme")) for each in schemes.values()} == {
            ("http", "bearer"),
            ("http", "basic"),
            ("apiKey", None),
        }
        for path, methods in described["paths"].items():
            for method, each in methods.items():
                is_public = path in ("/health", "/ping")
                assert ("security" in each) != is_public
                assert ("401" in each["responses"]) != is_public
                with server.http() as client:
                    answer = client.request(method, path.replace("{name}", "fake"), json={})
                assert (answer.status_code == 401) != is_public
        with server.http() as client:
            assert client.get("/live").status_code == 401


def test_a_server_without_keys_describes_those_of_the_admin_alone(described):
    secured = {path for path, methods in described["paths"].items() for each in methods.values() if "security" in each}
    adapters = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}
    assert secured == {"/reset_prefix_cache", "/start_profile", "/stop_profile", *adapters}


def test_no_description_of_fastapi_s_own_errors_is_left(described):
    assert "ValidationError" not in str(described)
    assert all("422" not in each["responses"] for methods in described["paths"].values() for each in methods.values())


@pytest.mark.parametrize(
    "path", ["/", "/health", "/version", "/v1/models", "/metrics", "/live", "/openapi.json", "/docs"]
)
def test_head_is_get_without_content(server, path):
    with server.http() as client:
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        if path not in ("/live", "/metrics"):
            got = client.get(path)
            assert head.headers["content-type" if got.content else "date"]
            assert head.headers.get("content-length") == got.headers.get("content-length")
        refused = client.head("/v1/completions")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert client.put("/health").headers["allow"] == "GET, HEAD"
        assert client.head("/nowhere").status_code == 404
