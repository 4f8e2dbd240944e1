"""Damages parsed JSON at random, and checks that a reader refuses it cleanly, quickly and without much memory."""

import copy
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

HOSTILE = (
    None, True, -1, 0, 1, 2**31 - 1, 2**63, 10**30, 1.5, float("inf"), float("nan"), "", "a", "x" * 5000,
    [], [None], [[]], {}, {"a": 1}, ["a", "b"], {"content": 5}, {"content": "new"},
)  # fmt: skip
NEW_KEYS = ("type", "vocab", "content", "", "id", "eos_token", "unknown")
MAX_BYTES, MAX_SECONDS = 64 << 20, 5.0


def damaged(rng: random.Random, value: Any) -> Any:
    """A copy with one or two values replaced, removed, or also under another key; the first and last items of lists."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 2)):
        places = list(_places(value))
        if not places:
            return value
        node, key = rng.choice(places)
        change = rng.randrange(4)
        if change == 0 and isinstance(node, dict):
            del node[key]
        elif change == 1 and isinstance(node, dict):
            node[rng.choice(NEW_KEYS)] = node[key]
        else:
            node[key] = copy.deepcopy(rng.choice(HOSTILE))
    return value


def damaged_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Some bytes replaced, and sometimes the end missing."""
    changed = bytearray(raw)
    for _ in range(rng.randint(1, 5)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randint(0, len(changed))] if rng.random() < 0.3 else changed)


def refusals(read: Callable[[random.Random], object], error: type[Exception], num_cases: int) -> int:
    """How many of the cases, one per seed, raise `error`; none may raise anything else, or take long or much memory."""
    num_refused = 0
    tracemalloc.start()
    try:
        for seed in range(num_cases):
            tracemalloc.reset_peak()
            started_s = time.process_time()
            try:
                read(random.Random(seed))
            except error:
                num_refused += 1
            except BaseException as other:
                other.add_note(f"seed {seed}")
                raise
            assert tracemalloc.get_traced_memory()[1] < MAX_BYTES, seed
            assert time.process_time() - started_s < MAX_SECONDS, seed
    finally:
        tracemalloc.stop()
    return num_refused


def _places(value: Any):
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = [(i, value[i]) for i in sorted({*range(min(3, len(value))), len(value) - 1} - {-1})]
    else:
        return
    for key, item in items:
        yield value, key
        yield from _places(item)
