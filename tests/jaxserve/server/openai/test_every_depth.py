"""A misspelled field is refused by its path at every depth of every body, found by walking the server's description."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.support.fakes.fake_llm import fake_llm
from tests.support.fakes.speaking_server import OpenMatchers
from tests.support.serving.body_fuzz import body_schemas
from tests.support.serving.http_server import running

Wrap = Callable[[Any], Any]
NESTED = {
    "stream_options",
    "messages[0]",
    "messages[0].content[0]",
    "messages[0].tool_calls[0]",
    "messages[0].tool_calls[0].function",
    "tools[0]",
    "tools[0].function",
}
CHOICE = {"tool_choice", "tool_choice.function"}
NESTED_ITEMS = {
    "input[0]",
    "input[0].content[0]",
    "input[0].output[0]",
    "input[0].summary[0]",
    "text.format",
    "tools[0]",
    "tool_choice",
}
# Fields that tools and their choice need, by route.
_CHAT = {
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "x"}}],
}
OF_TOOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": _CHAT,
    "/tokenize": _CHAT,
    "/v1/responses": {"tools": [{"type": "function", "name": "x"}]},
}
# What objects need besides their required fields, by their titles: content, for instance, unless there are tool calls.
NEEDED: dict[str, dict[str, Any]] = {
    "Message": {"role": "assistant", "content": "x"},
    "InputFunctionCall": {"arguments": "{}"},
    "InputReasoning": {"content": [{"type": "reasoning_text", "text": "x"}]},
    "StructuredOutputs": {"json_object": True},
}


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(check_grammar=lambda _: None, matchers=OpenMatchers())) as server:
        yield server


def kinds(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives of a schema but null."""
    if "$ref" in schema:
        return kinds(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return [kind for each in alternatives for kind in kinds(each, definitions)]
    return [] if schema.get("type") == "null" else [schema]


def valid(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """A value with what the schema requires."""
    kind = kinds(schema, definitions)[0]
    match kind.get("type"):
        case "object":
            required = {name: valid(kind["properties"][name], definitions) for name in kind.get("required", ())}
            return {**required, **NEEDED.get(kind.get("title", ""), {})}
        case "array":
            return [valid(kind["items"], definitions)] * kind.get("minItems", 0)
        case "string":
            return kind.get("enum", ["x"])[0]
        case "boolean":
            return False
        case _:
            return kind.get("minimum", 1)


def objects(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str = "", wrap: Wrap = lambda value: value
) -> Iterator[tuple[str, Mapping[str, Any], Wrap]]:
    """Every object of named fields: its path, its schema, and what puts its value into a valid body."""
    for kind in kinds(schema, definitions):
        if "items" in kind:
            yield from objects(kind["items"], definitions, f"{path}[0]", lambda item: wrap([item]))
        if "properties" not in kind:
            continue
        yield path, kind, wrap
        for name, part in kind["properties"].items():
            others = valid(kind, definitions)

            def wrapped(value: Any, name: str = name, others: Any = others) -> Any:
                return wrap({**others, name: value})

            yield from objects(part, definitions, f"{path}.{name}".lstrip("."), wrapped)


def complete(route: str, path: str, body: Any) -> Any:
    return {**OF_TOOLS.get(route, {}), **body} if path.startswith("tool") else body


def walked(server) -> Iterator[tuple[str, str, Mapping[str, Any], Wrap, Mapping[str, Any]]]:
    for route, schema in body_schemas(server.get("/openapi.json").json()).items():
        definitions = schema["$defs"]
        for path, kind, wrap in objects(schema, definitions):
            yield route, path, kind, wrap, definitions


def test_a_typo_is_refused_by_its_path_at_every_depth(server):
    wrong, num_planted = [], 0
    with server.http() as client:
        for route, path, kind, wrap, definitions in walked(server):
            for name in kind["properties"]:
                typo, num_planted = f"{name}x", num_planted + 1
                body = complete(route, path, wrap({**valid(kind, definitions), typo: None}))
                answer = client.post(route, json=body)
                error = answer.json().get("error", {})
                expected = f"{path}.{typo}".lstrip(".")
                message = error.get("message", "")
                if (answer.status_code, error.get("param")) != (400, expected) or expected not in message:
                    wrong.append((route, expected, answer.status_code, answer.text[:200]))
                elif f"did you mean {name!r}?" not in message:
                    wrong.append((route, expected, message))
    assert not wrong
    assert num_planted > 120


def test_the_walk_finds_nested_objects_and_its_bodies_are_accepted_without_a_typo(server):
    """Control: another fault would be refused, too."""
    found: dict[str, set[str]] = {}
    with server.http() as client:
        for route, path, kind, wrap, definitions in walked(server):
            found.setdefault(route, set()).add(path)
            if route == "/tokenize" and not path:
                continue  # needs one of two fields
            body = complete(route, path, wrap(valid(kind, definitions)))
            answer = client.post(route, json={**body, "max_tokens": 1} if "completions" in route else body)
            assert answer.status_code == 200, (route, path, body, answer.text)
    assert found["/v1/chat/completions"] >= {"", *NESTED, *CHOICE}
    assert found["/v1/responses"] >= {"", *NESTED_ITEMS}
    assert found["/v1/completions"] >= {"", "stream_options"}
    assert found["/tokenize"] >= NESTED - {"stream_options"}
