"""Host: checks of single fields: `check(name, value)` returns the value in one form, or raises `RequestError`."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard, cast

from jaxserve.core.errors import RequestError

MAX_STRINGS_CHARS = 4096  # of all stop strings, or bad words: their preparation takes 15 ms and 1 MB
MAX_LOGIT_BIAS = 300  # OpenAI's limit
MAX_LISTED = 10  # faults of one field that an error lists
MAX_FAULT_CHARS = 80
MAX_TOKEN_IDS = 1 << 20  # of one list of ids; more than any vocabulary
INT32_MAX = (1 << 31) - 1
INT64 = 1 << 63


def _shown(value: Any) -> str:
    return repr(value)[:200]


def integer(low: int, high: int = INT32_MAX) -> Callable[[str, Any], int]:
    """An integer in [low, high]."""

    def check(name: str, given: Any) -> int:
        try:
            value = None if isinstance(given, bool) else operator.index(given)
        except TypeError:
            value = None
        if value is None:
            raise RequestError(f"{name} must be an integer, got {_shown(given)}", name)
        if not low <= value <= high:
            raise RequestError(f"{name} must be between {low} and {high}, got {_shown(value)}", name)
        return value

    return check


def optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """The check, except that None is accepted."""
    return lambda name, value: None if value is None else check(name, value)


def number(low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str, Any], float]:
    """A finite float in [low, high], or in (low, high] if `above`."""
    bounds = f"{'above' if above else 'at least'} {low:g}" + (f", at most {high:g}" if high < math.inf else "")

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise RequestError(f"{name} must be a number, got {_shown(value)}", name)
        try:
            found = float(value)
        except (OverflowError, TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found) or not low <= found <= high or (above and found == low):
            raise RequestError(f"{name} must be finite, {bounds}; got {_shown(value)}", name)
        return found

    return check


def boolean(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, got {_shown(value)}", name)
    return value


def strings(limit: int) -> Callable[[str, Any], tuple[str, ...]]:
    """At most `limit` non-empty strings, as a tuple; None is the empty tuple."""

    def check(name: str, value: Any) -> tuple[str, ...]:
        items = () if value is None else value
        if not _is_string_list(items):
            raise RequestError(f"{name} must be a list of strings, got {_shown(items)}", name)
        if len(items) > limit:
            raise RequestError(f"{name} holds {len(items)} strings; at most {limit} are allowed", name)
        if not all(items):
            raise RequestError(f"{name} holds an empty string", name)
        if (num_chars := sum(map(len, items))) > MAX_STRINGS_CHARS:
            message = f"{name} holds {num_chars} characters; at most {MAX_STRINGS_CHARS} are allowed in all"
            raise RequestError(message, name)
        return tuple(items)

    return check


def _is_string_list(value: Any) -> TypeGuard[list[str] | tuple[str, ...]]:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in cast(Iterable[Any], value))


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """A list, set or array of ids as a tuple, each once, in the order of first occurrence."""
    is_list = hasattr(value, "__len__") and hasattr(value, "__iter__")
    if not is_list or isinstance(value, str | bytes | Mapping):
        raise RequestError(f"{name} must be a list of token ids, got {_shown(value)}", name)
    if len(value) > MAX_TOKEN_IDS:
        raise RequestError(f"{name} holds {len(value)} ids; at most {MAX_TOKEN_IDS} are allowed", name)
    id_of = integer(0)
    return tuple(dict.fromkeys(id_of(name, item) for item in value))


def logit_bias(name: str, value: Any) -> dict[int, float]:
    """Token id → bias, clamped to [-100, 100]; keys may be digits, as JSON has no integer keys."""
    if not isinstance(value, Mapping):
        raise RequestError(f"{name} must map token ids to numbers, got {_shown(value)}", name)
    entries = cast(Mapping[Any, Any], value)
    if len(entries) > MAX_LOGIT_BIAS:
        raise RequestError(f"{name} holds {len(entries)} entries; at most {MAX_LOGIT_BIAS} are allowed", name)
    biases: dict[int, float] = {}
    faults: list[str] = []
    for key, bias in entries.items():
        is_digits = isinstance(key, str) and key.isascii() and key.removeprefix("-").isdigit() and len(key) <= 10
        try:
            biases[_TOKEN_ID("id", int(key) if is_digits else key)] = max(-100.0, min(100.0, _BIAS("bias", bias)))
        except RequestError as error:
            faults.append(f"{_shown(key)}: {error}"[:MAX_FAULT_CHARS])
    if faults:
        raise RequestError(f"{name} has invalid entries: {listed(faults)}", name)
    return biases


_TOKEN_ID, _BIAS = integer(0), number(-math.inf)


def listed(items: Iterable[Any]) -> str:
    """The first items, and the number of others."""
    texts = list(map(str, items))
    more = len(texts) - MAX_LISTED
    return "; ".join(texts[:MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")
