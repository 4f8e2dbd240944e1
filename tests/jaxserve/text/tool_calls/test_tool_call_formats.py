"""Calls in the formats that model cards show, however the text is divided; what is no call stays content."""

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS, format_of_template
from tests.jaxserve.text.parsing.parsed_answers import NAMES, called, divisions, parsed
from tests.support.golden_tokenizers import template_of

PARIS, ADD = '{"location": "Paris, France"}', '{"a": 1, "b": [2.5, null, {"c": "}"}]}'
WEATHER = ("get_weather", PARIS)
BOTH = [WEATHER, ("add", ADD)]
DEEPSEEK = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
# As in the models' cards and templates: (format, answer, content, calls).
PUBLISHED = [
    ("hermes", f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>', "", [WEATHER]),
    (
        "hermes",
        f'Let me look.\n\n<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>\n<tool_call>\n'
        f'{{"arguments": {ADD}, "name": "add"}}\n</tool_call>',
        "Let me look.",
        BOTH,
    ),
    ("llama3_json", f'{{"name": "get_weather", "parameters": {PARIS}}}', "", [WEATHER]),
    (
        "llama3_json",
        f'<|python_tag|>{{"type": "function", "name": "any", "parameters": {PARIS}}}',
        "",
        [("any", PARIS)],
    ),
    (
        "llama3_json",
        f'{{"name": "get_weather", "parameters": {PARIS}}}; {{"name": "add", "parameters": {ADD}}}',
        "",
        BOTH,
    ),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "add", "arguments": {ADD}}}]',
        "",
        BOTH,
    ),
    ("mistral", f"I will.[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]add{ADD}", "I will.", BOTH),
    ("mistral", f"[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{PARIS}", "", [WEATHER]),
    (
        "deepseek_v3",
        DEEPSEEK.format(
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{PARIS}\n```<｜tool▁call▁end｜>\n"
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{ADD}\n```<｜tool▁call▁end｜>"
        ),
        "",
        BOTH,
    ),
    (
        "deepseek_v31",
        "Hm." + DEEPSEEK.format(f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{PARIS}<｜tool▁call▁end｜>"),
        "Hm.",
        [WEATHER],
    ),
    (
        "phi4_mini_json",
        f'functools[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "add", "arguments": {ADD}}}]',
        "",
        BOTH,
    ),
    (
        "phi4_mini_json",
        f'<|tool_call|>[{{"name": "get_weather", "arguments": {PARIS}}}]<|/tool_call|>',
        "",
        [WEATHER],
    ),
    (
        "pythonic",
        '[get_weather(location="Paris, France"), add(a=1, b=[2.5, None, {"c": "}"}])]',
        "",
        BOTH,
    ),
    ("llama4_pythonic", '<|python_start|>[get_weather(location="Paris, France")]<|python_end|>', "", [WEATHER]),
    ("gemma", '```tool_code\nget_weather(location="Paris, France")\n```', "", [WEATHER]),
    ("gemma", 'Of course.\n```tool_code\n[get_weather(location="Paris, France")]\n```\n', "Of course.", [WEATHER]),
    ("gemma", f'{{"name": "get_weather", "parameters": {PARIS}}}', "", [WEATHER]),
    ("gemma", f'```json\n[{{"name": "get_weather", "parameters": {PARIS}}}]\n```', "", [WEATHER]),
    ("json", f'[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "add", "parameters": {ADD}}}]', "", BOTH),
]
# No calls, or none any more: nothing of the text is lost.
CONTENT = [
    ("hermes", "Use <tool_call> to call. <tool", [], None),
    ("hermes", '<tool_call>{"name": 1, "arguments": {}}</tool_call>', [], None),
    ("hermes", '<tool_call>{"arguments": {"a": 1}', [], None),
    ("hermes", '<tool_call>{"name": "add", "arguments": [1]}</tool_call>', [], None),
    ("hermes", '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', [], None),
    ("hermes", '<tool_call>oops<tool_call>{"name": "add"}</tool_call> done', [("add", "{}")], "<tool_call>oops done"),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1, b}}', [("add", '{"a": 1, ')], "b}}"),
    ("hermes", '<tool_call>{"name": "add", "arguments": {"a": "\\x', [("add", '{"a": "\\')], "x"),
    ("llama3_json", '{"name": "unknown", "parameters": {}}', [], None),
    ("llama3_json", '{"name": "add"}', [], None),
    ("llama3_json", 'so: {"name": "add", "parameters": {}}', [], None),
    ("mistral", '[TOOL_CALLS] [{"name": "add", "arguments": {}}, 5]', [("add", "{}")], ", 5]"),
    ("mistral", "[TOOL_CALLS] none", [], None),
    ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\nnull", [], None),
    ("phi4_mini_json", "functools[1]", [], None),
    ("pythonic", "[1, 2]", [], None),
    ("pythonic", "[add(1)]", [], None),
    ("pythonic", "[add(a=b)]", [], None),
    ("pythonic", "[add(a=1e999)]", [], None),
    ("pythonic", "[add(a=1]", [], None),
    ("pythonic", "[add(**{'a': 1})]", [], None),
    ("pythonic", "[unknown(a=1)]", [], None),
    ("pythonic", "[add(a='\\ud800')]", [], None),
    ("gemma", "```python\nprint(1)\n```", [], None),
    ("gemma", "```tool_code\nprint(1)\n```", [], None),
    ("json", '{"answer": 5}', [], None),
    ("json", '```json\n{"answer": 5}\n```', [], None),
]


@pytest.mark.parametrize(("name", "text", "content", "calls"), PUBLISHED)
def test_published_calls_are_found(name, text, content, calls):
    assert called(name, text) == (content, calls)
    assert all(json.loads(arguments) for _, arguments in calls)


@pytest.mark.parametrize(("name", "text", "calls", "content"), CONTENT)
def test_what_is_no_call_stays_content(name, text, calls, content):
    assert called(name, text) == (text if content is None else content, calls)


TEXTS = [text for _, text, *_ in PUBLISHED + CONTENT]


@pytest.mark.parametrize("name", TOOL_CALL_FORMATS)
def test_the_same_is_found_for_any_division_of_the_text(name):
    """Each format reads the answers of all formats, with and without reasoning before them."""
    for number, (text, tags) in enumerate(product(TEXTS, (None, REASONING_TAGS["qwen3"]))):
        answers = AnswerFormat(TOOL_CALL_FORMATS[name], NAMES, tags=tags)
        said = text if tags is None else f"<think>\nhm {text[:9]}\n</think>\n\n{text}"
        whole = parsed(answers, [said])
        for pieces in divisions(said, 3, seed=number):
            assert parsed(answers, pieces).said == whole.said


MARKS = (
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "```",
    "json",
    "<|python_tag|>",
    '"name": "add"',
    '"arguments": ',
)
PARTS = st.sampled_from([*MARKS, *'\n {}[]()"\\1-;<é', ", ", "name", "add", "a=1", "true"])


@given(st.sampled_from(sorted(TOOL_CALL_FORMATS)), st.lists(PARTS, max_size=24))
def test_any_text_is_read_alike_whole_and_in_pieces_and_nothing_is_invented(name, parts):
    answers, text = AnswerFormat(TOOL_CALL_FORMATS[name], NAMES), "".join(parts)
    whole = parsed(answers, [text])
    assert whole.said == parsed(answers, parts).said == parsed(answers, text).said
    if not whole.calls:
        assert whole.content == text
    letters = [char for char in whole.content if not char.isspace()]
    rest = iter(text)
    assert all(char in rest for char in letters)  # in this order


def test_streaming_passes_arguments_on_as_they_come():
    parser = AnswerFormat(TOOL_CALL_FORMATS["hermes"], NAMES).parser()
    text = '<tool_call>{"name": "add", "arguments": {"a": "one two three"}}</tool_call>'
    at = {char: sum(hasattr(e, "text") for e in parser.push(char)) for char in text}
    assert at["w"] == 1  # "two": each character of a string at once
    assert parser.num_calls == 1


def test_line_breaks_in_strings_become_escapes():
    (call,) = called("hermes", '<tool_call>{"name": "add", "arguments": {"code": "a\n\tb\x01"}}</tool_call>')[1]
    assert json.loads(call[1]) == {"code": "a\n\tb\x01"}


def test_arguments_in_a_string_and_null_are_objects():
    for given_, made in (('"{\\"a\\": 1}"', '{"a": 1}'), ("null", "{}"), ('""', None), ('"[1]"', None)):
        calls = called("hermes", f'<tool_call>{{"name": "add", "arguments": {given_}}}</tool_call>')[1]
        assert calls == ([] if made is None else [("add", made)])


def test_only_the_first_call_stays_where_one_is_allowed():
    name, text, content, calls = PUBLISHED[1]
    assert called(name, text, max_calls=1) == (content, calls[:1])


def test_ids_are_as_the_models_templates_want_them():
    for name, text, _, calls in PUBLISHED:
        found = parsed(AnswerFormat(TOOL_CALL_FORMATS[name], NAMES), [text])
        assert len(set(found.ids)) == len(calls)
        for call_id in found.ids:
            is_short = len(call_id) == 9 and call_id.isalnum()
            assert is_short if name == "mistral" else call_id.startswith("call_") and int(call_id[5:], 16) >= 0


@pytest.mark.parametrize("name", TOOL_CALL_FORMATS)
def test_long_answers_are_read_in_linear_time(name):
    """A thousand times as many steps would take minutes; each text is the worst that a format could be given."""
    size = 20_000
    for text in ("<" * size, "[" * size, " " * size, '{"name": "add", "arguments": ' + "[" * size, "```" + "a" * size):
        assert parsed(AnswerFormat(TOOL_CALL_FORMATS[name], NAMES), [text, "x"]).content
    deep = '<tool_call>{"name": "add", "arguments": {"a": ' + "[" * size
    assert sum(map(len, called("hermes", deep)[1][0])) > size


def test_a_format_is_chosen_by_the_template():
    assert format_of_template(template_of("qwen3").source) == "hermes"
    assert format_of_template(template_of("gemma3").source) == "gemma"
    shown = {
        "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        "mistral": "{{ '[TOOL_CALLS] [' }}",
        "phi4_mini_json": "<|tool|>{{ tools }}<|/tool|>",
        "llama3_json": "<|python_tag|>",
        "pythonic": "Example Format: [func_name1(params_name1=params_value1)]",
        "json": "{{ tools | tojson }}",
    }
    assert {name: format_of_template(source) for name, source in shown.items()} == {name: name for name in shown}
    assert format_of_template(None) is None
    assert format_of_template("<tool_call><function=name>") is None
    assert {format_of_template(source) for source in shown.values()} <= set(TOOL_CALL_FORMATS)
