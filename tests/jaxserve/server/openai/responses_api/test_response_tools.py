"""Function calls and reasoning of /v1/responses, with the real `openai` client."""

import json

import openai
import pytest
from pydantic import BaseModel

from tests.support.fakes.fake_llm import PLAIN_TEMPLATE
from tests.support.fakes.speaker import stage
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
CALL = '{"name": "add", "arguments": {"a": 1}}'
THINKS = PLAIN_TEMPLATE + "{# <think></think> #}"
THOUGHT = "<think>\nhm, 1\n</think>\n\nso 2"


@pytest.fixture(scope="module")
def stand():
    with stage() as stand:
        yield stand


@pytest.fixture
def client(stand):
    with stand.server.openai() as client:
        yield client


class add(BaseModel):
    a: int


def test_a_function_is_called_and_its_result_sent_back(stand, client):
    stand.will_say(CALL, PATH, ASKED)
    answer = client.responses.create(**ASKED)
    (call,) = answer.output
    assert (call.type, call.name, json.loads(call.arguments), call.status) == (
        "function_call",
        "add",
        {"a": 1},
        "completed",
    )
    assert answer.tools[0].name == "add"
    assert (answer.output_text, answer.status) == ("", "completed")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
    again = {"model": NAME, "input": [{"role": "user", "content": "1?"}, call.to_dict(), result]}
    stand.will_say("2", PATH, again)
    assert client.responses.create(**again).output_text == "2"


def test_arguments_are_streamed_and_parsed(stand, client):
    tool = openai.pydantic_function_tool(add)["function"]
    asked = {**ASKED, "tools": [{"type": "function", **tool}]}
    stand.will_say(CALL, PATH, asked)
    with client.responses.stream(**asked) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert len(snapshots) > 1
    assert json.loads(snapshots[-1]) == {"a": 1}
    assert final.output[0].parsed_arguments == {"a": 1}
    check_response_events(stand.server.post(PATH, {**asked, "stream": True}).text)


@pytest.mark.parametrize(
    ("choice", "said", "is_list"),
    [
        ("required", '[{"name": "add", "parameters": {"a": 1}}]', True),
        ({"type": "function", "name": "add"}, '{"a": 1}', False),
    ],
)
def test_a_choice_holds_the_output_to_calls(stand, client, choice, said, is_list):
    asked = {**ASKED, "tool_choice": choice}
    stand.will_say(said, PATH, asked)
    answer = client.responses.create(**asked)
    assert [(call.name, json.loads(call.arguments)) for call in answer.output] == [("add", {"a": 1})]
    assert json.loads(stand.constraints[-1].json).get("type") == ("array" if is_list else "object")
    check_response(stand.server.post(PATH, asked).text)


def test_a_text_besides_tools_is_a_message(stand, client):
    stand.will_say("no call", PATH, ASKED)
    assert client.responses.create(**ASKED).output_text == "no call"
    asked = {**ASKED, "tool_choice": "none"}
    stand.will_say(CALL, PATH, asked)
    assert client.responses.create(**asked).output_text == CALL


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
def test_what_is_not_built_is_refused_by_its_path(stand, fields, param):
    answer = stand.server.post(PATH, {**ASKED, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert param.partition("[")[0].partition(".")[0] in answer.text


def test_reasoning_is_an_item_and_its_tokens_are_counted():
    asked = {"model": NAME, "input": "1?"}
    with stage(THINKS, reasoning_parser="auto") as stand, stand.server.openai() as client:
        stand.will_say(THOUGHT, PATH, asked)
        answer = client.responses.create(**asked)
        reasoning, message = answer.output
        assert (reasoning.content[0].text, message.content[0].text) == ("hm, 1", "so 2")
        assert reasoning.summary == []
        num_reasoning = answer.usage.output_tokens_details.reasoning_tokens
        assert len("hm, 1") <= num_reasoning < answer.usage.output_tokens
        *_, last = check_response_events(stand.server.post(PATH, {**asked, "stream": True}).text)
        assert last["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": num_reasoning}
        again = [
            {"role": "user", "content": "1?"},
            reasoning.to_dict(),
            message.to_dict(),
            {"role": "user", "content": "2?"},
        ]
        assert client.responses.create(model=NAME, input=again, max_output_tokens=1).status == "incomplete"
