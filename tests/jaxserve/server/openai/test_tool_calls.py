"""Tools over HTTP: calls whole and streamed, as OpenAI's clients read them; the rest is refused by name."""

import json
from typing import Any

import pytest

from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, Speaker, all_pages_are_back, fake_llm
from tests.support.fakes.real_grammars import engines_with_grammars
from tests.support.fakes.speaking_server import speaking
from tests.support.serving.http_server import NAME, running
from tests.support.serving.response_schemas import check_error, check_stream, check_whole

PATH = "/v1/chat/completions"
HERMES = PLAIN_TEMPLATE + "{# <tool_call> #}"
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
TOOLS = [ADD, {"type": "function", "function": {"name": "now", "description": "The time.", "strict": True}}]
ASK = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
ONE = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TWO = f'Let me see.\n{ONE}\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>'
FORCED = '[{"name": "now", "parameters": {}}, {"name": "add", "parameters": {"a": 2}}]'
SAID = (ONE, TWO, "No tools: <tool_cal", '<tool_call>{"name": "add", "argum', FORCED, '{"a": 3}')
CALLS, WORDS_AND_CALLS, WORDS, BROKEN, LIST, ARGUMENTS = range(len(SAID))
ANSWERS: dict[int, tuple[str | None, list[tuple[str, str]]]] = {
    CALLS: (None, [("add", '{"a": 1}')]),
    WORDS_AND_CALLS: ("Let me see.", [("add", '{"a": 1}'), ("now", "{}")]),
    WORDS: (SAID[WORDS], []),
    BROKEN: (SAID[BROKEN], []),
}


@pytest.fixture(scope="module")
def server():
    with speaking(*SAID, template=HERMES) as spoken:
        yield spoken.server
    assert all_pages_are_back(spoken.server.llm)


def whole(server, **fields: Any) -> dict[str, Any]:
    body = {**ASK, **fields}
    answer = server.post(PATH, body)
    assert answer.status_code == 200, answer.text
    return check_whole(PATH, body, answer.text)


def streamed(server, **fields: Any) -> list[dict[str, Any]]:
    body = {**ASK, **fields, "stream": True}
    return check_stream(PATH, body, server.post(PATH, body).text)


def said(message: dict[str, Any]) -> tuple[str | None, list[tuple[str, str]]]:
    """Content and calls."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message["content"], [(call["name"], call["arguments"]) for call in calls]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> tuple[dict[str, Any], str]:
    """A choice's message, put together as clients do, and its finish reason."""
    message: dict[str, Any] = {"content": None, "tool_calls": []}
    reasons = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for part in delta.get("tool_calls", ()):
                if part["index"] == len(message["tool_calls"]):
                    assert part["type"] == "function"
                    assert part["function"]["arguments"] == ""
                    message["tool_calls"].append({"id": part["id"], "function": dict(part["function"])})
                else:
                    assert part.keys() == {"index", "function"}
                    message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
            reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    (reason,) = reasons
    return message, reason


@pytest.mark.parametrize("seed", ANSWERS)
def test_calls_are_found_whole_and_streamed(server, seed):
    (found,) = whole(server, seed=seed, tool_choice="auto")["choices"]
    assert said(found["message"]) == ANSWERS[seed]
    reason = "tool_calls" if ANSWERS[seed][1] else "stop"
    assert found["finish_reason"] == reason
    message, ended = joined(streamed(server, seed=seed))
    assert (said(message), ended) == (ANSWERS[seed], reason)


def test_arguments_arrive_in_pieces_after_their_name_and_the_last_chunk_says_nothing(server):
    chunks = streamed(server, seed=CALLS)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert parts[0]["function"] == {"name": "add", "arguments": ""}
    assert parts[0]["id"].startswith("call_")
    assert len(parts) > 5
    assert deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "tool_calls"]


def test_the_openai_client_reads_calls_and_streams(server):
    with server.openai() as client:
        asked = {"model": NAME, **ASK, "seed": WORDS_AND_CALLS}
        (choice,) = client.chat.completions.create(**asked).choices
        assert [call.function.name for call in choice.message.tool_calls] == ["add", "now"]
        with client.chat.completions.stream(**asked) as stream:
            events = list(stream)
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert [(event.name, event.arguments) for event in done] == [("add", '{"a": 1}'), ("now", "{}")]
        final = stream.get_final_completion().choices[0]
        assert (final.message.content, final.finish_reason) == ("Let me see.", "tool_calls")


def test_samples_are_read_apart_and_log_probabilities_and_tokens_stay_complete(server):
    fields = {"seed": CALLS, "n": 2, "logprobs": True, "return_token_ids": True}
    answer = whole(server, **fields)
    ids = [call["id"] for choice in answer["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    chunks = streamed(server, **fields)
    for choice in answer["choices"]:
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) == len(ONE) + 1
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert [i for part in parts for i in part.get("token_ids", ())] == choice["token_ids"]
        contents = [entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]]
        assert contents == choice["logprobs"]["content"]
        assert said(joined(chunks, choice["index"])[0]) == ANSWERS[CALLS]


def test_one_call_alone_where_the_client_wants_no_more(server):
    (found,) = whole(server, seed=WORDS_AND_CALLS, parallel_tool_calls=False)["choices"]
    assert said(found["message"]) == ("Let me see.", [("add", '{"a": 1}')])
    message, _ = joined(streamed(server, seed=WORDS_AND_CALLS, parallel_tool_calls=False))
    assert said(message) == said(found["message"])


def test_no_call_without_tools_or_with_the_choice_none(server):
    shown = server.post("/tokenize", ASK).json()["count"]
    for fields in ({"tools": None}, {"tools": []}, {"tool_choice": "none"}):
        answer = whole(server, seed=CALLS, **fields)
        assert said(answer["choices"][0]["message"]) == (ONE, [])
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["prompt_tokens"] == shown - len("(add)(now)")


def test_required_calls_are_a_list(server):
    fields = {"seed": LIST, "tool_choice": "required"}
    expected = [("now", "{}"), ("add", '{"a": 2}')]
    (found,) = whole(server, **fields)["choices"]
    assert (said(found["message"]), found["finish_reason"]) == ((None, expected), "tool_calls")
    message, reason = joined(streamed(server, **fields))
    assert (said(message), reason) == ((None, expected), "tool_calls")


def test_a_named_function_is_its_arguments(server):
    fields = {"seed": ARGUMENTS, "tool_choice": {"type": "function", "function": {"name": "add"}}}
    (found,) = whole(server, **fields)["choices"]
    assert (said(found["message"]), found["finish_reason"]) == ((None, [("add", '{"a": 3}')]), "tool_calls")
    message, reason = joined(streamed(server, **fields))
    assert (said(message), reason) == ((None, [("add", '{"a": 3}')]), "tool_calls")


def test_a_form_of_its_own_does_not_go_with_calls_that_are_required(server):
    error = check_error(
        server.post(PATH, {**ASK, "tool_choice": "required", "response_format": {"type": "json_object"}}).text
    )
    assert error["param"] == "tool_choice"


CHOOSE = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": False}
CHOICES = [{"type": "function", "function": {"name": name, "parameters": CHOOSE}} for name in ("one", "two")]


@pytest.fixture(scope="module")
def grammars():
    """A model that draws at random among what a grammar allows."""
    with engines_with_grammars() as engine, running(engine(template=HERMES, max_model_len=320)) as server:
        yield server


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "two"}}])
def test_random_draws_that_grammars_hold_are_calls_that_follow_the_schemas(grammars, choice):
    for seed in range(4):
        body = {"tools": CHOICES, "tool_choice": choice, "seed": seed, "parallel_tool_calls": False}
        answer = whole(grammars, **body)["choices"][0]
        content, ((name, arguments),) = said(answer["message"])
        assert (content, answer["finish_reason"]) == (None, "tool_calls")
        assert name in ("one", "two") if choice == "required" else name == "two"
        assert json.loads(arguments) in ({"a": 1}, {"a": 22})
        assert said(joined(streamed(grammars, **body))[0]) == (None, [(name, arguments)])


def test_a_schema_that_no_grammar_can_hold_is_refused_as_a_tool_s(grammars):
    impossible = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": impossible}}]
    answer = grammars.post(PATH, {**ASK, "tools": tools, "tool_choice": "required"})
    assert (answer.status_code, check_error(answer.text)["param"]) == (400, "tools")
    assert grammars.post(PATH, {**ASK, "tools": tools, "max_tokens": 1}).status_code == 200  # the model's own choice


def test_a_call_that_is_cut_off_ends_by_length(server):
    (found,) = whole(server, seed=CALLS, max_tokens=len(ONE) - 20)["choices"]
    (_, ((name, arguments),)) = said(found["message"])
    assert (name, found["finish_reason"]) == ("add", "length")
    assert '{"a": 1}'.startswith(arguments)
    assert joined(streamed(server, seed=CALLS, max_tokens=len(ONE) - 20))[1] == "length"


def test_stop_strings_end_the_text_that_calls_are_read_from(server):
    (found,) = whole(server, seed=WORDS_AND_CALLS, stop=["<tool"])["choices"]
    assert (said(found["message"]), found["finish_reason"]) == (("Let me see.\n", []), "stop")


def test_results_go_back_to_the_model(server):
    call = whole(server, seed=CALLS)["choices"][0]["message"]
    messages = [*ASK["messages"], call, {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "3"}]
    assert said(whole(server, seed=WORDS, messages=messages)["choices"][0]["message"])[0] == SAID[WORDS]


NAMED = {"type": "function", "function": {"name": "sub"}}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": 5}, "tools", "must be a list"),
    ({"tools": [5]}, "tools[0]", "must be an object"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", "not supported"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
    ({"tools": [{"function": ADD["function"]}]}, "tools[0].type", "missing"),
    ({"tools": [{**ADD, "function": {"name": "a b"}}]}, "tools[0].function.name", "letters"),
    ({"tools": [{**ADD, "function": {"name": None}}]}, "tools[0].function.name", "must be text"),
    ({"tools": [{**ADD, "function": {"name": "f", "parameters": "x"}}]}, "tools[0].function.parameters", "an object"),
    ({"tools": [{**ADD, "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict", "true or false"),
    ({"tools": [ADD, ADD]}, "tools[1].function.name", "another tool"),
    ({"tools": [ADD] * 129}, "tools", "at most 128"),
    ({"tools": [{**ADD, "function": {"name": "f", "description": "x" * (1 << 17)}}]}, "tools", "characters"),
    ({"tool_choice": "any"}, "tool_choice", "none"),
    ({"tool_choice": 5}, "tool_choice", "text or an object"),
    ({"tool_choice": NAMED}, "tool_choice", "none of the tools"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function", "missing"),
    ({"tool_choice": "required", "tools": []}, "tool_choice", "needs tools"),
    ({"parallel_tool_calls": "yes"}, "parallel_tool_calls", "bool"),
    ({"functions": [ADD["function"]]}, "functions", "use tools"),
    ({"function_call": {"name": "add"}}, "function_call", "use tool_choice"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "reads none of"),
    ({"stream_reasoning": False}, "stream_reasoning", "include_reasoning"),
]


@pytest.mark.parametrize(("fields", "param", "words"), BAD)
def test_what_cannot_be_honored_is_refused_by_name(server, fields, param, words):
    answer = server.post(PATH, {**ASK, **fields})
    error = check_error(answer.text)
    assert (answer.status_code, error["param"]) == (400, param)
    assert words in error["message"]


def test_tools_that_are_nested_deeply_are_refused(server):
    deep: Any = {}
    for _ in range(300):
        deep = {"items": deep}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    error = check_error(server.post(PATH, {**ASK, "tools": [tool], "tool_choice": "required"}).text)
    assert (error["param"], "levels" in error["message"]) == ("tools", True)


def test_completions_take_no_tools(server):
    error = check_error(server.post("/v1/completions", {"prompt": "x", "tools": TOOLS}).text)
    assert error["param"] == "tools"
    assert "/v1/chat/completions" in error["message"]


@pytest.mark.parametrize("options", [{"enable_auto_tool_choice": False}, {"tool_call_parser": "none"}])
def test_a_server_may_leave_the_choice_to_clients_alone(options):
    with speaking(*SAID, template=HERMES, **options) as spoken:
        server = spoken.server
        for choice in (None, "auto"):
            assert check_error(server.post(PATH, {**ASK, "tool_choice": choice}).text)["param"] == "tool_choice"
        assert said(whole(server, seed=CALLS, tool_choice="none")["choices"][0]["message"]) == (ONE, [])
        (found,) = whole(server, seed=LIST, tool_choice="required")["choices"]
        assert len(found["message"]["tool_calls"]) == 2


MARK = 262  # a special token


def test_marks_that_are_special_tokens_are_seen_but_not_shown():
    """The text leaves out special tokens, except for the marks of calls; other special tokens stay out."""
    metadata = byte_level(eos_token_id=261)
    metadata["tokenizer.ggml.tokens"][MARK] = "[TOOL_CALLS]"
    answer = [*b"Hm.", MARK, *b' [{"name": "add", "arguments": {"a": 1}}]']
    llm = fake_llm(
        Speaker(264, said=(answer,)),
        template=PLAIN_TEMPLATE + "{# [TOOL_CALLS] #}",
        tokenizer=tokenizer_from_gguf(metadata),
        max_model_len=320,
    )
    with running(llm) as server:
        for fields in ({}, {"skip_special_tokens": False}):
            (found,) = whole(server, seed=0, **fields)["choices"]
            assert said(found["message"]) == ("Hm.", [("add", '{"a": 1}')])
            (call,) = found["message"]["tool_calls"]
            assert len(call["id"]) == 9  # as Mistral's templates want it
        plain = whole(server, seed=0, tool_choice="none")["choices"][0]["message"]["content"]
        assert "[TOOL_CALLS]" not in plain


def test_a_format_may_be_chosen_by_name():
    answer = "[add(a=1), now()]"
    with speaking(answer, template=HERMES, tool_call_parser="pythonic") as spoken:
        (found,) = whole(spoken.server, seed=0)["choices"]
        assert said(found["message"]) == (None, [("add", '{"a": 1}'), ("now", "{}")])


def test_arguments_are_json(server):
    for seed in (CALLS, WORDS_AND_CALLS):
        for call in whole(server, seed=seed)["choices"][0]["message"]["tool_calls"]:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
