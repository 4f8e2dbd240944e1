"""Valid and invalid request bodies, generated from the server's OpenAPI description.

No list of fields is kept here: new fields and routes are fuzzed automatically. `HINTS` has what schemas cannot express,
such as the form of a message, so that a large share of the bodies is accepted.
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from jaxserve.server.openai.requests.unsupported_fields import IGNORED, UNSUPPORTED
from tests.support.serving.fuzz_values import TEXTS, Schema, Values

_CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
_MESSAGES: list[Any] = [
    {"role": "user", "content": "hi"},
    {"role": "system", "content": "é"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "2"},
    {"role": "assistant", "content": "so", "name": "x"},
]
_PROMPTS: list[Any] = ["x", "naïve 😀", ["a", "bb"], [104, 105], [[104], [105, 106]]]
_ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "é"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "2"},
]
_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}}}}},
    {"type": "function", "function": {"name": "now", "description": "é", "strict": True}},
]
HINTS: Mapping[str, list[Any]] = {
    "prompt": _PROMPTS,
    "input": [*_PROMPTS, _ITEMS[:1], _ITEMS[:3], _ITEMS],
    **{name: ["naïve 😀", "x"] for name in ("text_1", "queries", "data_1", "query")},
    **{name: [["a", "bb"], ["x"]] for name in ("text_2", "documents", "items", "data_2")},
    "messages": [_MESSAGES[:1], _MESSAGES[:3], _MESSAGES[-1:], _MESSAGES[3:5], _MESSAGES],
    "instructions": ["be"],
    "text": [{"format": {"type": "text"}}, {"format": {"type": "json_object"}, "verbosity": "medium"}],
    "include": [["message.output_text.logprobs"], []],
    "metadata": [{"a": "b"}],
    "max_output_tokens": [1, 2, 5, 20],
    "tokens": [[104, 105], [0], list(range(200))],
    "tools": [_TOOLS, _TOOLS[1:], [], [{"type": "function", **tool["function"]} for tool in _TOOLS]],
    "tool_choice": ["auto", "none"],
    "reasoning_effort": [None],
    "n": [1, 2, 3],
    "max_tokens": [1, 2, 5, 20],
    "max_completion_tokens": [1, 2, 5, 20],
    "min_tokens": [0, 1],
    "stream": [True],
    "stop_token_ids": [[5], []],
    "allowed_token_ids": [[97, 98, 99]],
    "response_format": [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}, "strict": True}},
        {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<"]},
    ],
    "structured_outputs": [
        {"json": {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}, "disable_any_whitespace": True},
        {"regex": "[a-c]{1,3}"},
        {"choice": ["yes", "no"]},
        {"grammar": 'start: "a"+', "json": None},
        {"json_object": True, "whitespace_pattern": " ?"},
    ],
    "logit_bias": [{"97": 5}, {"98": -100.0, "99": 1}],
    "priority": [0],
    "chat_template": ["{{ messages[0].content }}"],
    "model": [None],
}
MAX_BYTES = 16 << 20  # the server closes the connection to a client that sends more, perhaps before it has read all
OFTEN = ("max_tokens", "max_output_tokens", "stream")  # without the first two, outputs are long


@dataclass(frozen=True, slots=True)
class Case:
    """One request. body: the parsed `raw`, or None if that is damaged."""

    number: int
    path: str
    raw: bytes
    body: Any


def body_schemas(api: Mapping[str, Any]) -> dict[str, Schema]:
    """The body schemas by path, each once: /invocations takes those of other paths, and some paths are aliases. Those
    of the admin, whose key the fuzz has not, are left out.

    api: the server's OpenAPI description.
    """
    found = {}
    for path, methods in api["paths"].items():
        if "security" in methods.get("post", {}):
            continue
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        if "properties" in schema and schema["title"] not in [each["title"] for each in found.values()]:
            found[path] = {**schema, "$defs": api["components"]["schemas"]}
    return found


def cases(schemas: Mapping[str, Schema], seed: int) -> Iterator[Case]:
    """An endless sequence, determined by the seed. A path's frequency is proportional to its number of fields."""
    rng, paths = random.Random(seed), sorted(schemas)
    weights = [len(schemas[path]["properties"]) for path in paths]
    for number in count():
        (path,) = rng.choices(paths, weights)
        body = _body(rng, schemas[path])
        raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
        if rng.random() < 0.03:
            raw, body = _damaged(rng, raw)
        if len(raw) > MAX_BYTES:
            continue
        yield Case(number, path, raw, body)


def _body(rng: random.Random, schema: Schema) -> Any:
    values, properties = Values(rng, schema, HINTS), schema["properties"]
    if rng.random() < 0.02:
        return values.anything()
    pairs = schema.get("oneOf", [])
    needed = rng.choice(pairs)["required"] if pairs else schema.get("required")
    needed = needed or [next(name for name in HINTS if name in properties)]
    often = [name for name in OFTEN if name in properties and rng.random() < 0.7]
    others = _some(rng, properties, rng.choice((0, 0, 1, 1, 2, 3, 8)))
    body = {name: values.good(properties[name], name) for name in (*needed, *often, *others)}
    if rng.random() < 0.5:
        return body
    for name in _some(rng, properties, rng.choice((1, 1, 1, 2, 4))):
        body[name] = values.extreme(properties[name], name) if rng.random() < 0.7 else values.anything()
    if rng.random() < 0.1:
        body[rng.choice([*sorted(IGNORED), *sorted(UNSUPPORTED), *TEXTS])] = values.anything()
    return body


def _some(rng: random.Random, names: Iterable[str], most: int) -> list[str]:
    known = sorted(names)
    return rng.sample(known, min(most, len(known)))


def _damaged(rng: random.Random, raw: bytes) -> tuple[bytes, Any]:
    """The bytes truncated or with one byte changed, and their parsed value."""
    where = rng.randrange(len(raw))
    raw = raw[:where] if rng.random() < 0.5 else raw[:where] + bytes([rng.randrange(256)]) + raw[where + 1 :]
    try:
        return raw, json.loads(raw)
    except ValueError:
        return raw, None
