"""`response_format`, `structured_outputs`, aliases: what each asks for; errors name the field that was sent."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jaxserve.core.errors import QueueFullError, RequestError
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.field_aliases import PARTS
from jaxserve.server.openai.requests.response_format import STRUCTURED_OUTPUTS, errors_name
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.fakes.speaking_server import OpenMatchers
from tests.support.serving.http_server import running, until

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]}
NAMED = {"name": "x", "schema": SCHEMA}
AS_JSON = StructuredOutputsParams(json=SCHEMA)
TAG = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a"]}
FORMATS = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, StructuredOutputsParams(json_object=True)),
    ({"type": "json_object", "schema": SCHEMA}, AS_JSON),
    ({"type": "json_schema", "json_schema": NAMED}, AS_JSON),
    ({"type": "json_schema", "json_schema": NAMED | {"strict": True, "description": "d"}}, AS_JSON),
    ({"type": "json_schema", "json_schema": NAMED | {"strict": None, "description": None}}, AS_JSON),
    ({"type": "structural_tag", **TAG}, StructuredOutputsParams(structural_tag=TAG)),
]
BODIES = {
    "/v1/completions": (CompletionBody, {"prompt": "x", "max_tokens": 2}),
    "/v1/chat/completions": (ChatBody, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
}
REFUSED = {"type": "string", "pattern": "("}


def asked(**fields):
    """The constraint of the parameters that both kinds of bodies give."""
    found = {kind.read({**body, **fields}).sampling_params({}).constraint for kind, body in BODIES.values()}
    (constraint,) = found
    return constraint


@pytest.mark.parametrize(("value", "expected"), FORMATS)
def test_each_response_format_is_a_constraint(value, expected):
    assert asked(response_format=value) == expected


def test_structured_outputs_are_vllm_s_and_may_have_nulls():
    for fields in ({"json": SCHEMA}, {"regex": "a"}, {"choice": ["a"]}, {"grammar": "g"}, {"structural_tag": TAG}):
        params = StructuredOutputsParams(**fields)
        assert asked(structured_outputs=fields) == params
        nulls = dict.fromkeys(STRUCTURED_OUTPUTS["properties"])
        assert asked(structured_outputs=nulls | fields) == params
    assert set(STRUCTURED_OUTPUTS["properties"]) == set(StructuredOutputsParams.__dataclass_fields__)


def test_both_fields_must_agree():
    formatted = {"type": "json_schema", "json_schema": NAMED}
    assert asked(structured_outputs={"json": SCHEMA}, response_format=formatted) == AS_JSON
    assert asked(structured_outputs={"json": SCHEMA}, response_format={"type": "text"}) == AS_JSON
    with pytest.raises(RequestError, match="differ: send one") as error:
        asked(structured_outputs={"json": {"type": "object"}}, response_format=formatted)
    assert error.value.param == "response_format"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"guided_json": SCHEMA}, AS_JSON),
        ({"guided_json": json.dumps(SCHEMA)}, AS_JSON),
        ({"json_schema": SCHEMA}, AS_JSON),
        ({"json_schema": SCHEMA, "response_format": {"type": "json_schema", "json_schema": NAMED}}, AS_JSON),
        ({"guided_regex": "a+"}, StructuredOutputsParams(regex="a+")),
        ({"regex": "a+"}, StructuredOutputsParams(regex="a+")),
        ({"guided_choice": ["a", "b"]}, StructuredOutputsParams(choice=["a", "b"])),
        ({"guided_grammar": "g"}, StructuredOutputsParams(grammar="g")),
        ({"ebnf": "g"}, StructuredOutputsParams(grammar="g")),
        ({"grammar": "g"}, StructuredOutputsParams(grammar="g")),
        ({"grammar": ""}, None),
        ({"guided_json": None, "regex": None}, None),
        (
            {"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"},
            StructuredOutputsParams(json=SCHEMA, whitespace_pattern=" ?"),
        ),
    ],
)
def test_other_servers_fields_are_parts_of_structured_outputs(fields, expected):
    assert asked(**fields) == expected


def test_every_alias_is_tested():
    aliases = {alias for alias, (name, _) in PARTS.items() if name == "structured_outputs"}
    (mark,) = [m for m in test_other_servers_fields_are_parts_of_structured_outputs.pytestmark if m.args]
    assert {name for fields, _ in mark.args[1] for name in fields} >= aliases


def test_only_errors_about_the_form_get_the_name_of_the_field():
    with pytest.raises(RequestError) as error, errors_name("response_format"):
        raise RequestError("prompt 1: structured_outputs json has no end", "structured_outputs.json")
    assert (str(error.value), error.value.param) == ("prompt 1: response_format json has no end", "response_format")
    with pytest.raises(QueueFullError) as full, errors_name("response_format"):
        raise QueueFullError("structured_outputs are many", "max_num_waiting", retry_after_s=5)
    assert (str(full.value), full.value.param) == ("structured_outputs are many", "max_num_waiting")


@pytest.fixture(scope="module")
def served():
    """A server whose grammars are checked by a fake; the calls and their threads."""
    calls = []

    def check(params):
        calls.append((params, threading.current_thread().name))
        if "(" in (params.json or ""):
            raise RequestError("structured_outputs: the pattern has no end", "structured_outputs")

    with running(fake_llm(check_grammar=check, matchers=OpenMatchers())) as server:
        yield server, calls
        until(lambda: all_pages_are_back(server.llm))


def test_a_grammar_is_checked_once_a_call_in_a_thread_of_its_own(served):
    server, calls = served
    for path, (_, body) in BODIES.items():
        calls.clear()
        many = {"prompt": ["x", "y", "z"]} if path == "/v1/completions" else {}
        assert server.post(path, {**body, **many, "structured_outputs": {"regex": "a"}}).status_code == 200
        assert [params for params, _ in calls] == [StructuredOutputsParams(regex="a")]
        assert calls[0][1].startswith("waiting")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_refused_grammar_is_a_400_that_names_the_field_that_was_sent(served, path, is_streamed):
    server, _ = served
    fields = {
        "structured_outputs": {"json": REFUSED},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": REFUSED}},
    }
    for name, value in fields.items():
        answer = server.post(path, {**BODIES[path][1], "stream": is_streamed, name: value})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, name)
        assert error["message"] == f"{name}: the pattern has no end"


def test_requests_that_wait_for_grammars_keep_no_other_waiting():
    """There are more of them than threads of the event loop, in which each prompt is encoded."""
    waiting, is_over = [], threading.Event()

    def check(params):
        waiting.append(params)
        assert is_over.wait(60)

    num_waiting = min(32, (os.cpu_count() or 1) + 4) + 2
    body = {"prompt": "x", "max_tokens": 2}
    with (
        running(fake_llm(check_grammar=check, matchers=OpenMatchers())) as server,
        ThreadPoolExecutor(num_waiting) as threads,
    ):
        try:
            forms = [{"structured_outputs": {"regex": "a" * (i + 1)}} for i in range(num_waiting)]
            answers = [threads.submit(server.post, "/v1/completions", body | form) for form in forms]
            until(lambda: len(waiting) == num_waiting)
            assert server.post("/v1/completions", body).status_code == 200
            assert not any(answer.done() for answer in answers)
        finally:
            is_over.set()
        assert {answer.result().status_code for answer in answers} == {200}


def test_an_engine_without_grammars_refuses_them_by_name():
    for llm, reason in (
        (fake_llm(), "not supported by this engine"),
        (fake_llm(skip_tokenizer_init=True), "tokenizer"),
    ):
        with running(llm) as server:
            body = {"prompt": [97], "max_tokens": 2}
            assert server.post("/v1/completions", {**body, "response_format": {"type": "text"}}).status_code == 200
            answer = server.post("/v1/completions", {**body, "response_format": {"type": "json_object"}})
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "response_format")
            assert reason in error["message"]


def test_the_description_has_both_fields(served):
    server, _ = served
    described = server.get("/openapi.json").json()["components"]["schemas"]
    for name in ("CompletionBody", "ChatBody"):
        if name in described:
            assert {"response_format", "structured_outputs"} <= set(described[name]["properties"])
    text = json.dumps(server.get("/openapi.json").json())
    assert '"json_schema"' in text
    assert '"whitespace_pattern"' in text


def test_other_routes_refuse_the_fields_by_name(served):
    server, _ = served
    bodies = {"/v1/embeddings": {"input": "x"}, "/v1/score": {"text_1": "a", "text_2": "b"}}
    for path, body in bodies.items():
        for name in ("response_format", "structured_outputs", "guided_json"):
            answer = server.post(path, {**body, name: {"type": "json_object"}})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
