"""Field values generated from a JSON schema: valid ones, those at and beyond its limits, and arbitrary ones."""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXTS = [
    "a", "hello", "two words", "é", "ß→ü", "日本語", "😀", "👩\u200d👩\u200d👧", "e\u0301\u0323", "\u202eright to left",
    "\ufeffmark", "\x00", "\x1b[31m", "\u2028", "\uffff", "İ", "ﬁ", "left", "float", "mean", "{{ messages }}",
    "{% raw %}", "../../etc/passwd", "' OR 1=1 --", "<script>alert(1)</script>", "%s%n", "\\u0000", "\r\nX-Header: 1",
    "user", "<|end|>", " ", "\t\n", "0", "-1", "null", "NaN",
]  # fmt: skip
HALVES = ["\ud800", "a\udfff", "\udc00\ud800"]  # of UTF-16 surrogate pairs: JSON can represent them, UTF-8 cannot
INTEGERS = [0, 1, 2, 3, 5, 7, 20, 50, -1]
NUMBERS = [0, 0.001, 0.1, 0.5, 0.9, 1, 1.0, 1.5, 2, 30, -0.5, -2]
FAR_INTEGERS = [
    -2,
    127,
    128,
    129,
    1023,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**40,
]
FAR_NUMBERS = [1e-6, 5e-324, 1e-30, -0.0, 1e30, 1.7e308, -1e308, float("inf"), float("-inf"), float("nan"), 10**400]
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
DEPTHS = (60, 300, 800)
HUGE = 100_000


class Values:
    """schema: of the body, with the `$defs` that its fields refer to. hints: valid values by field name."""

    def __init__(self, rng: random.Random, schema: Schema, hints: Mapping[str, list[Any]]):
        self._rng, self._definitions, self._hints = rng, schema.get("$defs", {}), hints

    def good(self, schema: Schema, name: str = "") -> Any:
        rng = self._rng
        if name in self._hints and rng.random() < 0.9:
            return rng.choice(self._hints[name])
        kind = self._kind(schema)
        match kind.get("type"):
            case "boolean":
                return rng.random() < 0.5
            case "integer" | "number":
                known = INTEGERS if kind["type"] == "integer" else NUMBERS
                low, high = kind.get("minimum", min(known)), kind.get("maximum", max(known))
                return rng.choice([value for value in known if low <= value <= high])
            case "string":
                is_known = re.compile(kind.get("pattern", "")).search
                return rng.choice([text for text in TEXTS if is_known(text)] or TEXTS)
            case "array":
                low = kind.get("minItems", 0)
                return [self.good(kind["items"]) for _ in range(rng.randint(low, max(low, 3)))]
            case "object" if "properties" in kind:
                return {each: self.good(kind["properties"][each]) for each in rng.sample(sorted(kind["properties"]), 1)}
            case "object":
                member = kind["additionalProperties"]
                return {str(i): i if member is True else self.good(member) for i in range(rng.randint(0, 3))}
        return self.anything()

    def extreme(self, schema: Schema, name: str = "") -> Any:
        rng, kind = self._rng, self._kind(schema)
        if name in self._hints and rng.random() < 0.5:
            return self.changed(rng.choice(self._hints[name]))
        is_huge = rng.random() < 0.03
        match kind.get("type"):
            case "integer" | "number":
                edges = [kind[name] + step for name in BOUNDS if name in kind for step in (-1, 0, 1)]
                return rng.choice([*edges, *edges, *FAR_INTEGERS, *(FAR_NUMBERS if kind["type"] == "number" else [])])
            case "string":
                long = "ä" * (HUGE if is_huge else kind.get("maxLength", 1000) + rng.randint(0, 1))
                return rng.choice(["", long, *HALVES, *rng.sample(TEXTS, 3)])
            case "array":
                most = kind.get("maxItems", 300)
                size = HUGE if is_huge else rng.choice((0, 1, most, most + 1))
                first = [self.extreme(kind["items"]) for _ in range(min(size, rng.choice((0, 3))))]
                return first + [self.good(kind["items"])] * (size - len(first))
            case "object":
                size = HUGE // 10 if is_huge else rng.choice((0, 1, 301))
                return {rng.choice((str(i), TEXTS[i % len(TEXTS)])): self.anything() for i in range(size)}
        return self.anything()

    def anything(self, depth: int = 0) -> Any:
        """Arbitrary JSON, occasionally deeply nested."""
        rng = self._rng
        if depth == 0 and rng.random() < 0.05:
            value: Any = 0
            for _ in range(rng.choice(DEPTHS)):
                value = [value] if rng.random() < 0.5 else {"a": value}
            return value
        kinds: list[Callable[[], Any]] = [
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.choice(INTEGERS + FAR_INTEGERS),
            lambda: rng.choice(NUMBERS + FAR_NUMBERS),
            lambda: rng.choice(TEXTS + HALVES),
            lambda: [self.anything(depth + 1) for _ in range(rng.randint(0, 3))],
            lambda: {rng.choice(TEXTS): self.anything(depth + 1) for _ in range(rng.randint(0, 3))},
        ]
        return rng.choice(kinds if depth < 4 else kinds[:-2])()

    def changed(self, value: Any) -> Any:
        """The value with one part of it, at any depth, replaced by an arbitrary value."""
        rng = self._rng
        if isinstance(value, list | dict) and value and rng.random() < 0.8:
            keys = list(range(len(value)) if isinstance(value, list) else value)
            copy: Any = value.copy()
            key = rng.choice(keys)
            copy[key] = self.changed(value[key])
            return copy
        return self.anything(1)

    def _kind(self, schema: Schema) -> Schema:
        """One of the alternatives of a field's schema."""
        while True:
            if "$ref" in schema:
                schema = self._definitions[schema["$ref"].rpartition("/")[2]]
            elif kinds := schema.get("anyOf") or schema.get("oneOf"):
                schema = self._rng.choice([kind for kind in kinds if kind.get("type") != "null"])
            else:
                return schema
