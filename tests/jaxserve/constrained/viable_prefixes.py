"""Which bytes can begin a text that a regular expression matches, found by derivatives: an oracle without llguidance.

The derivative of a language by a byte is what may follow that byte (Brzozowski 1964). A prefix is viable if the
derivative by all its bytes is not empty, and complete if that contains the empty text.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

NOTHING, EMPTY = ("nothing",), ("empty",)


@cache
def language(pattern: str) -> tuple[Any, ...]:
    """The language of a pattern of Python's `re` without anchors, classes with names or negated."""
    return _sequence(re._parser.parse(pattern))  # Python has no public parser of its patterns


def _sequence(items: Any) -> tuple[Any, ...]:
    result: tuple[Any, ...] = EMPTY
    for item in reversed(list(items)):
        result = cat(_item(*item), result)
    return result


def _item(kind: Any, value: Any) -> tuple[Any, ...]:
    match str(kind):
        case "LITERAL":
            return _character(value)
        case "IN":
            result = NOTHING
            for what, item in value:
                low, high = (item, item) if str(what) == "LITERAL" else item
                for code in range(low, high + 1):
                    result = alt(result, _character(code))
            return result
        case "BRANCH":
            result = NOTHING
            for branch in value[1]:
                result = alt(result, _sequence(branch))
            return result
        case "SUBPATTERN":
            return _sequence(value[3])
        case "MAX_REPEAT":
            low, high, body = value
            inner = _sequence(body)
            rest = ("star", inner) if str(high) == "MAXREPEAT" else EMPTY
            for _ in range(0 if str(high) == "MAXREPEAT" else high - low):
                rest = alt(EMPTY, cat(inner, rest))
            for _ in range(low):
                rest = cat(inner, rest)
            return rest
    raise NotImplementedError(kind)


def _character(code: int) -> tuple[Any, ...]:
    result = EMPTY
    for byte in reversed(chr(code).encode()):
        result = cat(("bytes", frozenset([byte])), result)
    return result


def cat(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    if NOTHING in (a, b):
        return NOTHING
    return b if a == EMPTY else a if b == EMPTY else ("cat", a, b)


def alt(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = frozenset().union(*((x[1] if x[0] == "alt" else frozenset([x])) for x in (a, b))) - {NOTHING}
    if members := frozenset().union(*(part[1] for part in parts if part[0] == "bytes")):
        parts = frozenset(part for part in parts if part[0] != "bytes") | {("bytes", members)}
    return NOTHING if not parts else next(iter(parts)) if len(parts) == 1 else ("alt", parts)


@cache
def is_complete(state: tuple[Any, ...]) -> bool:
    match state:
        case ("empty",) | ("star", _):
            return True
        case ("cat", a, b):
            return is_complete(a) and is_complete(b)
        case ("alt", parts):
            return any(map(is_complete, parts))
    return False


@cache
def after(state: tuple[Any, ...], byte: int) -> tuple[Any, ...]:
    """What may follow a byte."""
    match state:
        case ("bytes", members):
            return EMPTY if byte in members else NOTHING
        case ("star", a):
            return cat(after(a, byte), state)
        case ("cat", a, b):
            first = cat(after(a, byte), b)
            return alt(first, after(b, byte)) if is_complete(a) else first
        case ("alt", parts):
            result = NOTHING
            for part in parts:
                result = alt(result, after(part, byte))
            return result
    return NOTHING


def after_all(state: tuple[Any, ...], data: bytes) -> tuple[Any, ...]:
    for byte in data:
        state = after(state, byte)
    return state


class TokenTree:
    """The tokens with bytes by their bytes: what begins with the same ones is looked at once."""

    def __init__(self, token_bytes: Sequence[bytes]):
        self.ids: list[int] = []
        self.children: dict[int, TokenTree] = {}
        for i, data in enumerate(token_bytes):
            if data:
                node = self
                for byte in data:
                    node = node.children.setdefault(byte, TokenTree(()))
                node.ids.append(i)

    def allowed(self, state: tuple[Any, ...]) -> set[int]:
        """The tokens that can follow: all of their bytes are viable."""
        found = set(self.ids)
        for byte, child in self.children.items():
            if (then := after(state, byte)) != NOTHING:
                found |= child.allowed(then)
        return found
