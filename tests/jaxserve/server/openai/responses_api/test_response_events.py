"""The events of a response: their order, fields and sums, which the types of the `openai` package allow."""

import json
import random
from itertools import groupby

import pytest

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts
from jaxserve.server.openai.responses_api.generated_response import GeneratedResponse
from jaxserve.server.openai.responses_api.output_items import OutputItems
from jaxserve.server.openai.responses_api.response_head import ResponseHead
from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import running
from tests.support.serving.response_schemas import check_response, check_response_events

BODY = {"input": "hé", "max_output_tokens": 5}
VARIANTS = [
    {},
    {"stop": ["ï"], "instructions": "b"},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "metadata": {"a": "b"}},
    {"include": ["message.output_text.logprobs"], "user": "u", "temperature": 0},
    {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "truncation": "disabled", "store": False},
]
TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.incomplete",
]


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(Reciter(264, said="naïve 😀"))) as server:
        yield server


@pytest.mark.parametrize("fields", VARIANTS)
def test_whole_responses_and_events_have_the_package_s_fields(server, fields):
    whole = check_response(server.post("/v1/responses", BODY | fields).text)
    events = check_response_events(server.post("/v1/responses", BODY | fields | {"stream": True}).text)
    last = events[-1]["response"]
    assert [item["content"] for item in last["output"]] == [item["content"] for item in whole["output"]]
    assert {name for name in whole if whole[name] != last[name]} <= {
        "id", "created_at", "completed_at", "output", "usage"
    }  # fmt: skip


def test_the_events_of_a_text_come_in_openai_s_order(server):
    events = check_response_events(server.post("/v1/responses", BODY | {"stream": True}).text)
    assert [name for name, _ in groupby(event["type"] for event in events)] == TEXT_EVENTS
    assert events[0]["response"]["output"] == []
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    assert events[-3]["part"] == events[-2]["item"]["content"][0]


def test_an_empty_output_is_an_empty_text(server):
    body = BODY | {"stop": ["n", "a", "ï", "v", "e", " ", "😀", "\ufffd"]}
    events = check_response_events(server.post("/v1/responses", body | {"stream": True}).text)
    assert [event["type"] for event in events] == [*TEXT_EVENTS[:4], *TEXT_EVENTS[5:-1], "response.completed"]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == ""


def pieces(rng):
    """Random items: their type and their text in pieces."""
    for kind in rng.choices(["message", "reasoning", "function_call"], k=rng.randint(1, 6)):
        yield kind, [rng.choice(["", "a", "é", '{"x":', " 1}"]) for _ in range(rng.randint(1, 4))]


def fed(output, kind, texts):
    if kind == "function_call":
        yield from output.call("call_1", "f")
    add = {"message": output.text, "reasoning": output.reasoning, "function_call": output.arguments}[kind]
    for text in texts:
        yield from add(text)


@pytest.mark.parametrize("seed", range(20))
def test_the_deltas_of_every_item_add_up_to_it(seed):
    output, events, expected = OutputItems("1"), [], []
    for kind, texts in pieces(random.Random(seed)):
        events += fed(output, kind, texts)
        if expected and expected[-1][0] == kind != "function_call":
            texts = [expected.pop()[1], *texts]
        expected.append((kind, "".join(texts)))
    events += output.end("incomplete")
    found = []
    for index, item in enumerate(output.items):
        own = [event for event in events if event["output_index"] == index]
        added, *_, done = own
        assert (added["type"], done["type"]) == ("response.output_item.added", "response.output_item.done")
        assert added["item"]["id"] == done["item"]["id"] == item["id"]
        assert done["item"] == item
        text = "".join(event["delta"] for event in own if event["type"].endswith(".delta"))
        assert text == (item["arguments"] if "arguments" in item else item["content"][0]["text"])
        found.append((item["type"], text))
    assert found == expected
    assert [item["status"] for item in output.items] == ["completed"] * (len(expected) - 1) + ["incomplete"]


HERMES = AnswerFormat(TOOL_CALL_FORMATS["hermes"], ("add", "sub"), tags=REASONING_TAGS["qwen3"])
TEXT = """<think>
First add.
</think>

I call two.
<tool_call>
{"name": "add", "arguments": {"a": 1, "b": [2, "é"]}}
</tool_call>
<tool_call>
{"name": "sub", "arguments": {}}
</tool_call>"""


def response_of(server, answer_format):
    echo = check_response(server.post("/v1/responses", BODY).text)
    for name in ResponseHead("", "", {}).as_json("failed", []):
        del echo[name]
    return GeneratedResponse(
        ResponseHead("resp_1", "m", echo), TokenTexts(None, as_ids=True), None, answer_format, None
    )


def output_of(text, finish_reason=None):
    return RequestOutput("1", "p", [1], outputs=[CompletionOutput(0, text, [1], finish_reason=finish_reason)])


@pytest.mark.parametrize("seed", range(5))
def test_reasoning_and_calls_are_items(server, seed):
    whole = check_response(json.dumps(response_of(server, HERMES).whole([output_of(TEXT, "stop")])))
    reasoning, message, add, sub = whole["output"]
    assert (reasoning["type"], reasoning["content"][0]["text"]) == ("reasoning", "First add.")
    assert (message["type"], message["content"][0]["text"]) == ("message", "I call two.")
    assert [(each["type"], each["name"]) for each in (add, sub)] == [("function_call", "add"), ("function_call", "sub")]
    assert [json.loads(each["arguments"]) for each in (add, sub)] == [{"a": 1, "b": [2, "é"]}, {}]
    response, rng, rest = response_of(server, HERMES), random.Random(seed), TEXT
    sent = b"".join(response.first())
    while rest:
        length = rng.randint(1, 9)
        piece, rest = rest[:length], rest[length:]
        sent += b"".join(response.part(0, output_of(piece, None if rest else "stop")))
    events = check_response_events((sent + b"".join(response.last())).decode())
    output = events[-1]["response"]["output"]
    assert [{**item, "call_id": 0} for item in output] == [{**item, "call_id": 0} for item in whole["output"]]


def test_a_failure_ends_the_stream_with_what_was_finished(server):
    response = response_of(server, HERMES)
    sent = b"".join((*response.first(), *response.part(0, output_of("<think>a</think>b"))))
    sent += b"".join(response.failed(ApiError(503, "the request was aborted", code="aborted")))
    *_, last = check_response_events(sent.decode())
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert [item["type"] for item in last["response"]["output"]] == ["reasoning"]
    assert last["response"]["error"] == {"code": "server_error", "message": "the request was aborted"}


@pytest.mark.parametrize(
    ("good", "bad"),
    [('"annotations":[]', '"annotated":[]'), ('"cached_tokens"', '"cache_tokens"'), ('"status"', '"x":1,"status"')],
)
def test_a_response_with_a_fault_is_found(server, good, bad):
    text = server.post("/v1/responses", BODY).text
    assert good in text
    with pytest.raises((ValueError, AssertionError)):
        check_response(text.replace(good, bad))


def test_a_stream_with_a_fault_is_found(server):
    text = server.post("/v1/responses", BODY | {"stream": True}).text
    for good, bad in (('"sequence_number":3', '"sequence_number":4'), ("output_text.delta\n", "output_text.deltas\n")):
        assert good in text
        with pytest.raises((ValueError, AssertionError)):
            check_response_events(text.replace(good, bad, 1))
    assert json.loads(text.split("data: ")[1].split("\n")[0])["type"] == "response.created"
