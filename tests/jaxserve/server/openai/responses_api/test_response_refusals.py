"""Fields that are not built are refused by name, unless they ask for nothing; ranges are those of chats."""

import pytest

from jaxserve.server.openai.responses_api.responses_body import ResponsesBody
from jaxserve.server.openai.responses_api.unbuilt_fields import INSTEAD, NEUTRAL
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running
from tests.support.serving.response_schemas import check_error

PATH, BODY = "/v1/responses", {"input": "x", "max_output_tokens": 1}


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


@pytest.mark.parametrize("name", INSTEAD)
def test_a_field_that_is_not_built_is_refused_by_name(server, name):
    answer = server.post(PATH, {**BODY, name: "surely not neutral"})
    error = check_error(answer.text)
    assert (answer.status_code, error["param"], error["code"]) == (400, name, "unsupported_field")
    assert INSTEAD[name] in error["message"]
    for neutral in NEUTRAL[name]:
        ResponsesBody.read({**BODY, name: neutral})


REFUSED = [
    ({"temperature": -1}, "temperature"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": "5"}, "max_output_tokens"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"top_logprobs": 9, "include": ["message.output_text.logprobs"]}, "logprobs"),
    ({"include": ["file_search_call.results"]}, "include[0]"),
    ({"truncation": "some"}, "truncation"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"metadata": {"a" * 65: ""}}, "metadata"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "x": 1}}}, "text.format.x"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"text": "x"}, "text"),
    ({"inputs": "x"}, "inputs"),
    ({"input": "x" * 200}, "input"),
    ({"model": "other"}, "model"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_is_invalid_is_refused_by_its_path(server, fields, param):
    for stream in (False, True):
        answer = server.post(PATH, {**BODY, **fields, "stream": stream})
        assert (answer.status_code, check_error(answer.text)["param"]) == (404 if param == "model" else 400, param)


def test_the_input_is_required(server):
    assert check_error(server.post(PATH, {"max_output_tokens": 1}).text)["param"] == "input"


def test_a_body_without_an_unbuilt_field_is_accepted(server):
    """Control."""
    assert server.post(PATH, BODY).status_code == 200
