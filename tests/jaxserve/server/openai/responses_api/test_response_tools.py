"""Function calls and reasoning of /v1/responses, with the real `openai` client."""

import json

import openai
import pytest
from pydantic import BaseModel

from tests.support.fakes.fake_llm import PLAIN_TEMPLATE
from tests.support.fakes.speaking_server import speaking
from tests.support.serving.http_server import NAME
from tests.support.serving.response_schemas import check_response, check_response_events

PATH = "/v1/responses"
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": True,
}
ASKED = {"model": NAME, "input": "1?", "tools": [ADD]}
THINKS = PLAIN_TEMPLATE + "{# <think></think> #}"
SAID = (
    '{"name": "add", "arguments": {"a": 1}}',
    '[{"name": "add", "parameters": {"a": 1}}]',
    '{"a": 1}',
    "no call",
    "<think>\nhm, 1\n</think>\n\nso 2",
)
CALL, LIST, ARGUMENTS, WORDS, THOUGHT = ({"seed": i} for i in range(len(SAID)))


@pytest.fixture(scope="module")
def speaker():
    with speaking(*SAID) as speaker:
        yield speaker


@pytest.fixture
def client(speaker):
    with speaker.server.openai() as client:
        yield client


class add(BaseModel):
    a: int


def test_a_function_is_called_and_its_result_sent_back(client):
    answer = client.responses.create(**ASKED, extra_body=CALL)
    (call,) = answer.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1})
    assert answer.tools[0].name == "add"
    assert (answer.output_text, answer.status) == ("", "completed")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
    items = [{"role": "user", "content": "1?"}, call.to_dict(), result]
    assert client.responses.create(model=NAME, input=items, extra_body=WORDS).output_text == "no call"


def test_arguments_are_streamed_and_parsed(speaker, client):
    tool = openai.pydantic_function_tool(add)["function"]
    asked = {**ASKED, "tools": [{"type": "function", **tool}]}
    with client.responses.stream(**asked, extra_body=CALL) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert len(snapshots) > 1
    assert json.loads(snapshots[-1]) == {"a": 1}
    assert final.output[0].parsed_arguments == {"a": 1}
    check_response_events(speaker.server.post(PATH, {**asked, **CALL, "stream": True}).text)


@pytest.mark.parametrize(
    ("choice", "said", "kind"),
    [("required", LIST, "array"), ({"type": "function", "name": "add"}, ARGUMENTS, "object")],
)
def test_a_choice_holds_the_output_to_calls(speaker, client, choice, said, kind):
    answer = client.responses.create(**ASKED, tool_choice=choice, extra_body=said)
    assert [(call.name, json.loads(call.arguments)) for call in answer.output] == [("add", {"a": 1})]
    assert json.loads(speaker.constraints[-1].json)["type"] == kind
    check_response(speaker.server.post(PATH, {**ASKED, **said, "tool_choice": choice}).text)


def test_a_text_besides_tools_is_a_message(client):
    assert client.responses.create(**ASKED, extra_body=WORDS).output_text == "no call"
    assert client.responses.create(**ASKED, tool_choice="none", extra_body=CALL).output_text == SAID[0]


REFUSED = [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{**ADD, "name": "a b"}]}, "tools[0].name"),
    ({"tools": [ADD, ADD]}, "tools[1].name"),
    ({"tools": [{**ADD, "parameters": []}]}, "tools[0].parameters"),
    ({"tools": [{**ADD, "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [{"type": "function", "function": {"name": "add"}}]}, "tools[0].function"),
    ({"tools": {}}, "tools"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "sub"}}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.type"),
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"tool_choice": "required", "text": {"format": {"type": "json_object"}}}, "tool_choice"),
    ({"include": ["message.output_text.logprobs"]}, "include"),
    ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
    ({"reasoning": {"effort": "lots"}}, "reasoning.effort"),
    ({"max_tool_calls": 1}, "max_tool_calls"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_is_not_built_is_refused_by_its_path(speaker, fields, param):
    answer = speaker.server.post(PATH, {**ASKED, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert param.partition("[")[0].partition(".")[0] in answer.text


def test_reasoning_is_an_item_and_its_tokens_are_counted():
    asked = {"model": NAME, "input": "1?", "extra_body": THOUGHT}
    with speaking(*SAID, template=THINKS, reasoning_parser="auto") as speaker, speaker.server.openai() as client:
        answer = client.responses.create(**asked)
        reasoning, message = answer.output
        assert (reasoning.content[0].text, message.content[0].text) == ("hm, 1", "so 2")
        assert reasoning.summary == []
        num_reasoning = answer.usage.output_tokens_details.reasoning_tokens
        assert len("hm, 1") <= num_reasoning < answer.usage.output_tokens
        body = {"input": "1?", "stream": True, **THOUGHT}
        *_, last = check_response_events(speaker.server.post(PATH, body).text)
        assert last["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": num_reasoning}
        user = {"role": "user", "content": "1?"}
        again = [user, reasoning.to_dict(), message.to_dict(), user]
        assert client.responses.create(model=NAME, input=again, extra_body=WORDS).output_text == "no call"
