"""docs/serving.md matches the code: its tables are compared with it, and its examples run."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from jaxserve.cli import batch, bench, serve
from jaxserve.cli.args.dataclass_flags import given
from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import MAX_LOGIT_BIAS
from jaxserve.core.options.sampling_params import MAX_BAD_WORDS
from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.engine.inputs.chat_renderer import EFFORTS
from jaxserve.server.http.error_responses import TYPES, ApiError
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.requests.field_aliases import ALIASES, CACHE_PROMPT, PARTS, SKIP_CACHE
from jaxserve.server.openai.requests.generation_fields import MAX_STOPS, SamplingFields, StreamOptions
from jaxserve.server.openai.requests.score_bodies import RerankBody, ScoreBody
from jaxserve.server.openai.requests.text_inputs import MAX_TEXTS
from jaxserve.server.openai.requests.tokenization_bodies import DetokenizeBody, TokenizeBody
from jaxserve.server.openai.requests.unsupported_fields import IGNORED, UNSUPPORTED
from jaxserve.server.server_config import ServerConfig
from jaxserve.text.message_schema import MAX_MESSAGES, ROLES, conversation_schema
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS
from jaxserve.text.tool_calls.tool_schema import CHOICE_SCHEMA, MAX_CHARS, MAX_DEPTH, MAX_TOOLS
from tests.end_to_end.api.test_recipes import blocks
from tests.repository.modules import ROOT
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import Running, running

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
CHOICES = CHOICE_SCHEMA["anyOf"][0]["enum"]
SHARED = set(SamplingFields.model_fields)
CHAT_MESSAGES = [{"role": "user", "content": "a"}]
# Heading of a table → the fields it must list, their body, and a valid body to which any of them can be added.
FIELDS: dict[str, tuple[set[str], Any, dict[str, Any]]] = {
    "Completions and chats": (SHARED, CompletionBody, {"prompt": "a", "max_tokens": 1 << 20, "echo": True}),
    "Completions only": (set(CompletionBody.model_fields) - SHARED, CompletionBody, {"prompt": "a"}),
    "Chats only": (set(ChatBody.model_fields) - SHARED, ChatBody, {"messages": CHAT_MESSAGES, "logprobs": True}),
    "Embeddings": (set(EmbeddingBody.model_fields), EmbeddingBody, {"input": "a"}),
    "Scores and ranks": (
        set(ScoreBody.model_fields) | set(RerankBody.model_fields),
        RerankBody,
        {"query": "a", "documents": ["b"]},
    ),
    "Tokens": (set(TokenizeBody.model_fields) | set(DetokenizeBody.model_fields), TokenizeBody, {"prompt": "a"}),
}


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its header."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def code(text: str) -> list[str]:
    """The texts between backticks."""
    return re.findall(r"`([^`]+)`", text)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(fake_llm()) as server:
        yield server


def test_every_option_is_listed_with_its_default_and_help():
    expected = []
    for field in fields(ServerConfig):
        flag = f"`--{field.name.replace('_', '-')}`"
        default = field.default if field.default not in (None, (), "", MISSING) else ""
        shown = {True: "on", False: "off"}.get(default, default) if isinstance(default, bool) else default
        expected.append([flag, str(shown), field.metadata["help"].replace("|", "\\|")])
    assert rows("Options") == expected


def test_every_route_is_listed(server):
    described = server.get("/openapi.json").json()["paths"]
    expected = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    listed = {name for row in rows("Endpoints") for name in code(row[0])}
    undescribed = {"GET /", "GET /docs", "GET /redoc", "GET /openapi.json"}
    assert listed == expected | undescribed
    assert {server.get(name.partition(" ")[2]).status_code for name in undescribed} == {200}


def references(part: Any) -> list[str]:
    """All `$ref`s of a description, at any depth."""
    if isinstance(part, list):
        return [found for each in part for found in references(each)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + references(list(part.values()))


def test_every_reference_of_the_description_resolves(server):
    described = server.get("/openapi.json").json()
    found = set(references(described))
    assert "#/components/schemas/StreamOptions" in found
    for reference in found:
        part = described
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    assert "$defs" not in str(described)


@pytest.mark.parametrize("heading", FIELDS)
def test_every_field_is_listed(heading):
    listed = [name for row in rows(heading) for name in code(row[0])]
    assert len(listed) == len(set(listed))
    assert set(listed) == FIELDS[heading][0]


def test_the_fields_within_stream_options_are_listed():
    (row,) = [row for row in rows("Completions and chats") if "`stream_options`" in row[0]]
    assert {name.partition(":")[0] for name in code(row[2])} >= {*StreamOptions.model_fields} - {"include_obfuscation"}


RANGES = [
    (heading, name, row[1]) for heading in FIELDS for row in rows(heading) for name in code(row[0]) if " … " in row[1]
]


def accepts(heading: str, name: str, value: float) -> bool:
    _, kind, others = FIELDS[heading]
    try:
        body = kind.read({**others, name: value})
        if isinstance(body, SamplingFields):
            body.sampling_params({})
            SchedulingOptions(**body.scheduling(None))
    except (ApiError, RequestError) as error:
        return name not in str(
            error
        )  # a refusal for another reason counts as acceptance, and shows as a range without an end
    return True


@pytest.mark.parametrize(("heading", "name", "listed"), RANGES, ids=[name for _, name, _ in RANGES])
def test_the_ranges_match_validation(heading, name, listed):
    """Both ends are accepted, and nothing beyond; `> 0 … 1` excludes its lower end, and ∞ means no upper end."""
    low, high = listed.split(" … ")
    step = 1 if accepts(heading, name, 1) and not accepts(heading, name, 0.5) else 1e-3
    is_above = low.startswith("> ")
    ends = [float(low.removeprefix("> ")), *([] if high == "∞" else [float(high)])]
    as_number = int if step == 1 else float
    inside = [as_number(end) for end in ends[is_above:]] or [as_number(ends[0] + step)]
    outside = [as_number(ends[0] - (0 if is_above else step)), *(as_number(end + step) for end in ends[1:])]
    assert [accepts(heading, name, value) for value in inside] == [True] * len(inside)
    assert [accepts(heading, name, value) for value in outside] == [False] * len(outside)


def test_the_page_has_ranges():
    assert len(RANGES) > 12


LIMITS = {
    "Completions and chats": {"stop": MAX_STOPS, "logit_bias": MAX_LOGIT_BIAS, "bad_words": MAX_BAD_WORDS},
    "Completions only": {"prompt": MAX_TEXTS},
    "Scores and ranks": {"text_1": MAX_TEXTS},
    "Chats only": {"messages": MAX_MESSAGES, "tools": MAX_TOOLS},
}


@pytest.mark.parametrize("heading", LIMITS)
def test_the_lengths_of_lists_match_validation(heading):
    listed = {name: " ".join(row[1:]) for row in rows(heading) for name in code(row[0])}
    for name, limit in LIMITS[heading].items():
        assert re.search(rf"\b{limit}\b", listed[name]), (name, limit)


def test_the_fields_of_messages_are_listed():
    listed = {name for row in rows("Messages") for name in code(row[0])}
    assert listed == set(conversation_schema()["items"]["properties"])
    assert set(code(rows("Messages")[0][2])) >= set(ROLES)


def test_the_formats_of_tool_calls_and_reasoning_are_listed():
    listed = {name for row in rows("Tools") for name in code(row[0])}
    assert listed - {"tool_choice"} == {*TOOL_CALL_FORMATS, *CHOICES, '{"type": "function", "function": {"name": …}}'}
    assert f"at most {MAX_CHARS} characters" in section("Tools").replace("\n", " ")
    assert f"{MAX_DEPTH} levels" in section("Tools")
    assert set(code(section("Reasoning"))) >= set(REASONING_TAGS)
    (efforts,) = [row[2] for row in rows("Chats only") if "`reasoning_effort`" in row[0]]
    assert set(code(efforts)) >= set(EFFORTS)


def test_the_names_of_other_servers_are_listed():
    listed = set(code(section("Names of other servers")))
    parts = {name for place in PARTS.values() for name in place}
    assert listed >= {*ALIASES, *ALIASES.values(), CACHE_PROMPT, SKIP_CACHE, *PARTS, *parts}


def test_the_length_of_the_queue_is_that_of_the_command():
    assert f"holds {serve.MAX_NUM_WAITING} samples" in section("Options")


def test_ignored_and_unsupported_fields_are_listed():
    ignored, unsupported = section("Ignored and unsupported fields").split("\n\n", 2)[:2]
    assert set(code(ignored)) == IGNORED
    assert {name.partition(":")[0].partition("=")[0] for name in code(unsupported)} >= set(UNSUPPORTED)
    assert not set(code(unsupported)) & SHARED


def test_every_status_is_listed():
    listed = {int(row[0]): code(row[1]) for row in rows("Errors")}
    assert listed == {status: [name] for status, name in TYPES.items()}


def test_every_metric_is_listed(server):
    lines = [line.split(" ", 3) for line in server.get("/metrics").text.splitlines() if line.startswith("# ")]
    texts = {name: text for _, word, name, text in lines if word == "HELP"}
    kinds = {name: kind for _, word, name, kind in lines if word == "TYPE"}
    expected = []
    for name in kinds:
        short = name.removeprefix("jaxserve:")
        if not name.startswith("vllm:"):
            is_own = name != short and f"vllm:{short}" not in kinds
            expected.append([f"`{short}`" + " (own)" * is_own, kinds[name], texts[name]])
    assert rows("Metrics") == expected


def test_every_field_of_the_log_is_listed():
    assert set(code(section("Log").split("\n\n")[1])) == set(AccessRecord("id", route="none").as_json(200))


def shell_lines() -> list[list[str]]:
    """The words of each shell command on the page."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    text = "".join(found).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def test_the_commands_of_the_page_parse():
    parsers = {"serve": serve, "batch": batch, "bench": bench}
    asked = [(words[1], words[2:]) for words in shell_lines() if words[0] == "jaxserve"]
    assert {verb for verb, _ in asked} == set(parsers)
    for verb, options in asked:
        found = parsers[verb]._parser().parse_args(options)
        if verb == "serve":
            ServerConfig(**given(found, ServerConfig))


def test_a_command_with_a_mistake_is_refused(capsys):
    with pytest.raises(SystemExit):
        serve._parser().parse_args(["m", "--api-kee", "k"])
    assert "--api-kee" in capsys.readouterr().err


def test_the_examples_run(server, capsys):
    """Against a fake model: its address and name replace those of the examples."""
    namespace = {"__name__": "manual"}
    found = blocks(PAGE)
    assert len(found) >= 3
    for line, source in found:
        there = source.replace("http://127.0.0.1:8000", server.url).replace("smollm2-135m-instruct", "fake")
        exec(compile("\n" * (line - 1) + there, "docs/serving.md", "exec"), namespace)
        assert capsys.readouterr().out.strip(), f"the block at line {line} prints nothing"
