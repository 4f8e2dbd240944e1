"""Reasoning over HTTP: told apart from the content where the server is asked to, counted in usage."""

from typing import Any

import pytest

from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, Speaker, fake_llm
from tests.support.fakes.real_grammars import engines_with_grammars
from tests.support.fakes.speaking_server import OpenMatchers, speaking
from tests.support.serving.http_server import NAME, running
from tests.support.serving.response_schemas import check_error, check_stream, check_whole

PATH = "/v1/chat/completions"
TEMPLATE = (
    PLAIN_TEMPLATE
    + "{% if enable_thinking is defined %}<think>{{ '\n' if enable_thinking else '</think>' }}{% endif %}"
)
ASK = {"messages": [{"role": "user", "content": "x"}]}
TAGGED, UNTAGGED, SILENT, ENDLESS = "<think>\nhm\n</think>\n\nYes.", "hm\n</think>\n\nYes.", "Yes.", "<think>hm"
SAID = (TAGGED, UNTAGGED, SILENT, ENDLESS)
# Seed, the rest of the body, reasoning, content, tokens up to the end of the reasoning.
ANSWERS: list[tuple[int, dict[str, Any], str | None, str | None, int]] = [
    (0, {}, "hm", "Yes.", len("<think>\nhm")),
    (1, {"reasoning_effort": "high"}, "hm", "Yes.", len("hm")),
    (2, {"reasoning_effort": "none"}, None, "Yes.", 0),
    (2, {}, None, "Yes.", 0),
    (3, {}, "hm", None, len("<think>hm")),
    (0, {"include_reasoning": False}, None, "Yes.", len("<think>\nhm")),
    (1, {}, None, UNTAGGED, 0),
]


@pytest.fixture(scope="module")
def server():
    llm = fake_llm(Speaker(264, said=SAID), template=TEMPLATE)
    with running(llm, reasoning_parser="auto") as server:
        yield server


def whole(server, **fields: Any) -> dict[str, Any]:
    answer = server.post(PATH, {**ASK, **fields})
    assert answer.status_code == 200, answer.text
    return check_whole(PATH, fields, answer.text)


@pytest.mark.parametrize(("seed", "fields", "reasoning", "content", "num_tokens"), ANSWERS)
def test_reasoning_is_told_apart_whole_and_streamed(server, seed, fields, reasoning, content, num_tokens):
    answer = whole(server, seed=seed, **fields)
    message = answer["choices"][0]["message"]
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": num_tokens}
    body = {**ASK, **fields, "seed": seed, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = check_stream(PATH, body, server.post(PATH, body).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    for name, expected in (("reasoning_content", reasoning), ("content", content)):
        assert "".join(delta.get(name) or "" for delta in deltas) == (expected or "")
    assert last["usage"] == answer["usage"]


def test_each_sample_s_tokens_count(server):
    usage = whole(server, seed=0, n=3, temperature=1)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 3 * len("<think>\nhm")


def test_a_client_may_want_the_text_as_it_is(server):
    answer = whole(server, seed=0, separate_reasoning=False)
    assert answer["choices"][0]["message"]["content"] == TAGGED
    assert "completion_tokens_details" not in answer["usage"]


def test_reasoning_in_a_continued_message(server):
    messages = [*ASK["messages"], {"role": "assistant", "content": "<think>so"}]
    message = whole(server, messages=messages, continue_final_message=True, seed=1)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "Yes.")


def test_reasoning_stays_in_the_content_by_default():
    with running(fake_llm(Speaker(264, said=SAID), template=TEMPLATE)) as server:
        assert whole(server, seed=0)["choices"][0]["message"]["content"] == TAGGED


def test_r1_reasons_without_a_tag():
    with running(fake_llm(Speaker(264, said=SAID)), reasoning_parser="deepseek_r1") as server:
        message = whole(server, seed=1)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm", "Yes.")


def test_the_openai_client_reads_the_field(server):
    with server.openai() as client:
        (choice,) = client.chat.completions.create(model=NAME, seed=0, **ASK).choices
        assert choice.message.reasoning_content == "hm"


FORM = {"structured_outputs": {"regex": r"[<A-Za-z>]+\."}}  # also of the tag's letters, so that none of them is forced


@pytest.fixture(scope="module")
def grammars():
    with (
        engines_with_grammars() as engine,
        running(engine(Speaker(264, said=SAID), template=TEMPLATE), reasoning_parser="auto") as server,
    ):
        yield server


@pytest.mark.parametrize(
    ("seed", "fields", "reasoning"),
    [(0, {}, "hm"), (1, {"reasoning_effort": "high"}, "hm"), (2, {"reasoning_effort": "none"}, None), (2, {}, None)],
)
def test_a_form_is_that_of_the_answer_after_its_reasoning(grammars, seed, fields, reasoning):
    message = whole(grammars, seed=seed, **FORM, **fields)["choices"][0]["message"]
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, "Yes.")


@pytest.mark.parametrize(
    ("seed", "fields"),
    [
        (1, {}),  # begins with a text that is not of the form
        (0, {"separate_reasoning": False}),  # the form is then that of the whole text
    ],
)
def test_no_other_answer_has_the_form(grammars, seed, fields):
    answer = grammars.post(PATH, {**ASK, **FORM, **fields, "seed": seed})
    assert (answer.status_code, check_error(answer.text)["code"]) == (400, "grammar_failed")


def test_calls_that_are_required_follow_reasoning():
    tools = [{"type": "function", "function": {"name": "add"}}]
    said = '<think>hm</think>\n[{"name": "add", "parameters": {"a": 2}}]'
    with speaking(said, template=TEMPLATE, reasoning_parser="auto") as spoken:
        message = whole(spoken.server, seed=0, tools=tools, tool_choice="required")["choices"][0]["message"]
    (form,) = spoken.constraints
    assert (form.reasoning_start, form.reasoning_end) == ("<think>", "</think>")
    assert (message["reasoning_content"], message["content"]) == ("hm", None)
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"a": 2}']


SPECIAL_END = 262


@pytest.mark.parametrize("opens", ["", "<think>"], ids=["", "opened by the prompt"])
def test_answers_in_a_form_have_no_reasoning_whose_tags_are_special_tokens(opens):
    """No grammar allows these. Other answers have it."""
    metadata = byte_level(eos_token_id=261)
    metadata["tokenizer.ggml.tokens"][SPECIAL_END] = "</think>"
    calls = '[{"name": "add", "parameters": {}}]'
    thought = [*f"{'' if opens else '<think>'}hm".encode(), SPECIAL_END, ord("A")]
    matchers = OpenMatchers()
    llm = fake_llm(
        Speaker(264, said=(calls, '{"a": 1}', thought)),
        template=PLAIN_TEMPLATE + "{# </think> #}" + opens,
        tokenizer=tokenizer_from_gguf(metadata),
        check_grammar=lambda _: None,
        matchers=matchers,
    )
    tools = {"tools": [{"type": "function", "function": {"name": "add"}}], "tool_choice": "required"}
    with running(llm, reasoning_parser="auto") as server:
        message = whole(server, seed=0, **tools)["choices"][0]["message"]
        assert (message.get("reasoning_content"), len(message["tool_calls"])) == (None, 1)
        message = whole(server, seed=1, response_format={"type": "json_object"})["choices"][0]["message"]
        assert (message.get("reasoning_content"), message["content"]) == (None, '{"a": 1}')
        message = whole(server, seed=2)["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm", "A")
    assert [form.reasoning_end for form in matchers.started] == [None, None]


def test_a_form_that_says_how_it_follows_reasoning_stays_as_it_is():
    own = {"structured_outputs": {"regex": "Yes", "reasoning_end": "."}}
    with speaking("hm.Yes", template=TEMPLATE, reasoning_parser="auto") as spoken:
        whole(spoken.server, seed=0, **own)
    assert [(form.reasoning_start, form.reasoning_end) for form in spoken.constraints] == [(None, ".")]
