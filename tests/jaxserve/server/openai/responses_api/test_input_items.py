"""Items of a response's input become the messages of a chat; what is invalid is named by its path."""

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.server.openai.responses_api.input_items import checked_items, messages_of
from jaxserve.text.chat_messages import checked_messages

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
USER = {"role": "user", "content": "x"}


def tool_call(call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


CONVERSATIONS = [
    ("hi", [{"role": "user", "content": "hi"}]),
    ([USER, SAID, USER], [USER, {"role": "assistant", "content": "so"}, USER]),
    (
        [USER, THOUGHT, SAID, CALL, {**CALL, "call_id": "c2"}, RESULT],
        [
            USER,
            {
                "role": "assistant",
                "reasoning_content": "hm",
                "content": "so",
                "tool_calls": [tool_call(), tool_call("c2")],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ],
    ),
    ([SAID, THOUGHT], [{"role": "assistant", "content": "so"}, {"role": "assistant", "reasoning_content": "hm"}]),
    ([CALL, SAID], [{"role": "assistant", "tool_calls": [tool_call()]}, {"role": "assistant", "content": "so"}]),
    ([SAID, SAID], [{"role": "assistant", "content": "so"}] * 2),
    ([{"type": "reasoning", "summary": []}, USER], [USER]),
    (
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}],
        [{"role": "assistant", "reasoning_content": "s"}],
    ),
    (
        [{**RESULT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
        [{"role": "tool", "tool_call_id": "c1", "content": "a\nb"}],
    ),
]


@pytest.mark.parametrize(("given", "expected"), CONVERSATIONS)
def test_items_become_messages_that_templates_take(given, expected):
    messages = messages_of(None, checked_items(given))
    assert messages == expected
    checked_messages(messages)


def test_instructions_are_the_first_message_of_the_system():
    assert messages_of("be", checked_items("hi"))[0] == {"role": "system", "content": "be"}


REFUSED = [
    ([], "input"),
    (5, "input"),
    ("", "input"),
    ([5], "input[0]"),
    ([USER, {"type": "computer_call"}], "input[1].type"),
    ([USER, {"type": ["message"]}], "input[1].type"),
    ([{"role": "tool", "content": "x"}], "input[0].role"),
    ([{"role": "user"}], "input[0].content"),
    ([{"role": "user", "content": ""}], "input[0].content"),
    ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{**USER, "nam": 1}], "input[0].nam"),
    ([{**CALL, "arguments": "{"}], "input[0].arguments"),
    ([{**CALL, "arguments": "[" * 100_000}], "input[0].arguments"),
    ([{**CALL, "arguments": {}}], "input[0].arguments"),
    ([{**CALL, "namespace": "n"}], "input[0].namespace"),
    ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
    ([{**RESULT, "output": [{"type": "input_file", "file_id": "f"}]}], "input[0].output[0].type"),
    ([{**THOUGHT, "encrypted_content": "x"}], "input[0].encrypted_content"),
    ([{**SAID, "content": [{"type": "refusal", "refusal": "no"}]}], "input[0].content[0].type"),
    ([{"type": "item_reference", "id": "msg_1"}], "input[0].type"),
    ([USER] * 5000, "input"),
]


@pytest.mark.parametrize(("given", "param"), REFUSED)
def test_what_is_invalid_is_named_by_its_path(given, param):
    with pytest.raises(RequestError) as error:
        checked_items(given)
    assert error.value.param == param
    assert param in str(error.value)
