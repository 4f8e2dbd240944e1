"""Constraints and random texts of their forms, for scripts/benchmarks/grammars/bench_grammars.py."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

WORDS = (
    "a the of in and energy model language river Köln naïve small large quick brown bright person station "
    "tokens memory lazy dog jumped over report answer question weather summary 2026 3.5 (see below) “quoted” – then"
).split()


@dataclass(frozen=True)
class Case:
    """params: fields of `StructuredOutputsParams`. text: a text of that form."""

    params: dict[str, Any]
    text: Callable[[Random], str]


def prose(random: Random, num_words: int) -> str:
    return " ".join(random.choices(WORDS, k=num_words))


def written(value: Callable[[Random], Any]) -> Callable[[Random], str]:
    return lambda random: json.dumps(value(random), ensure_ascii=False)


def person(random: Random) -> dict[str, Any]:
    return {
        "name": prose(random, 2),
        "age": random.randrange(100),
        "kind": random.choice(["private", "company", "other"]),
        "tags": [prose(random, 1) for _ in range(random.randrange(6))],
        "active": random.random() < 0.5,
        "score": round(random.uniform(0, 100), 2),
        "notes": prose(random, random.randrange(10, 60)),
    }


def place(random: Random) -> dict[str, Any]:
    return {"latitude": round(random.uniform(-90, 90), 4), "longitude": round(random.uniform(-180, 180), 4)}


def tree(random: Random, depth: int = 4) -> dict[str, Any]:
    children = [tree(random, depth - 1) for _ in range(random.randrange(3))] if depth else []
    return {"label": prose(random, 2), "children": children}


def anything(random: Random, depth: int = 3) -> Any:
    kind = random.randrange(6 if depth else 4)
    if kind == 4:
        return [anything(random, depth - 1) for _ in range(random.randrange(5))]
    if kind == 5:
        return {prose(random, 1): anything(random, depth - 1) for _ in range(random.randrange(1, 5))}
    return [random.randrange(10**6), prose(random, 8), None, random.random()][kind]


def call(random: Random) -> str:
    return f"{prose(random, 12)}\n<call=find>{json.dumps({'query': prose(random, 4)}, ensure_ascii=False)}</call>\n"


def formula(random: Random) -> str:
    return "".join(f"{random.randrange(1000)} {random.choice('+-*/')} " for _ in range(20)) + "7"


def typed(**properties: Any) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
PERSON = typed(
    name=STRING,
    age={"type": "integer", "minimum": 0, "maximum": 150},
    kind={"enum": ["private", "company", "other"]},
    tags={"type": "array", "items": STRING, "maxItems": 10},
    active={"type": "boolean"},
    score={"type": "number", "minimum": 0, "maximum": 100},
    notes={"type": "string", "maxLength": 2000},
)
PLACE = typed(
    latitude={"type": "number", "minimum": -90, "maximum": 90},
    longitude={"type": "number", "minimum": -180, "maximum": 180},
)
TREE = {"$defs": {"n": typed(label=STRING, children={"type": "array", "items": {"$ref": "#/$defs/n"}})}}
LABELS = [f"{color} {thing} {i}" for color in ("red", "green") for thing in ("car", "house") for i in range(50)]
TAG = {"begin": "<call=find>", "schema": typed(query=STRING), "end": "</call>"}
FORMULA = 'start: term (OP term)*\nterm: NUMBER | "(" start ")"\nNUMBER: /[0-9]+/\nOP: " "? /[-+*\\/]/ " "?'
LOG_LINES = r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z (?:INFO|WARN|ERROR) [a-z]+\.[a-z]+: [^\n]{1,80}\n)+"


def log_lines(random: Random) -> str:
    return "".join(f"2026-11-2{i}T10:0{i}:30Z INFO disk.io: {prose(random, 9)[:80]}\n" for i in range(5))


CASES = {
    "object with seven properties": Case({"json": PERSON}, written(person)),
    "list of objects": Case(
        {"json": {"type": "array", "items": PERSON}}, written(lambda random: [person(random) for _ in range(3)])
    ),
    "numbers in ranges": Case(
        {"json": {"type": "array", "items": PLACE}}, written(lambda random: [place(random) for _ in range(8)])
    ),
    "recursive schema": Case({"json": {**TREE, "$ref": "#/$defs/n"}}, written(tree)),
    "any JSON object": Case({"json_object": True}, written(lambda random: {"data": anything(random)})),
    "regular expression": Case({"regex": LOG_LINES}, log_lines),
    "choice of 200": Case({"choice": LABELS}, lambda random: random.choice(LABELS)),
    "structural tag": Case({"structural_tag": {"structures": [TAG], "triggers": ["<call="]}}, call),
    "Lark": Case({"grammar": FORMULA}, formula),
}
