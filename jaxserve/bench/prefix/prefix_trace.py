"""Host: the traces of `jaxserve bench prefix`: requests as rows of ids, each for a unit and all units before it.

Equal ids therefore mean equal prefixes: a request hits as many units as its row shares with an earlier row.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np

from jaxserve.core.errors import RequestError

UnitSequences = list[np.ndarray]
"""int32[units] per request, in the order of arrival."""

MAX_UNITS = 1 << 20  # of one request


def read_unit_trace(path: Path) -> UnitSequences:
    """A Mooncake trace: JSON lines with `hash_ids`, one id per block of 512 tokens (Qin et al., arXiv 2407.00079).

    Raises `RequestError` with the invalid line.
    """
    rows: UnitSequences = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                ids = json.loads(line)["hash_ids"]
                if not all(type(i) is int and 0 <= i < 2**31 for i in ids) or not 0 < len(ids) <= MAX_UNITS:
                    raise ValueError
            except (ValueError, TypeError, KeyError, RecursionError):
                raise RequestError(
                    f"{path}, line {number}: not a JSON object with hash_ids, a list of ids below 2^31"
                ) from None
            rows.append(np.array(ids, np.int32))
    if not rows:
        raise RequestError(f"{path} has no requests: each is a line of JSON with hash_ids")
    _check_ids(rows, path)
    return rows


def _check_ids(rows: UnitSequences, path: Path) -> None:
    before: dict[int, int] = {}
    for number, row in enumerate(rows, start=1):
        previous = -1
        for i in row.tolist():
            if before.setdefault(i, previous) != previous:
                raise RequestError(f"{path}, line {number}: id {i} follows other ids than in an earlier line")
            previous = i


def conversations(num_systems: int, num_users: int, num_turns: int, *, seed: int) -> UnitSequences:
    """Conversations of several users, each after one of a few system prompts; every turn repeats all earlier ones.

    System prompts have 4 to 16 units, turns 1 to 8. The next user is drawn at random, so pauses have all lengths.
    """
    draw, ids = np.random.default_rng(seed), count()
    systems = [_new(ids, int(draw.integers(4, 17))) for _ in range(num_systems)]
    contexts: UnitSequences = [systems[draw.integers(num_systems)] for _ in range(num_users)]
    rows: UnitSequences = []
    order: list[int] = draw.permutation(np.repeat(np.arange(num_users), num_turns)).tolist()
    for user in order:
        contexts[user] = np.concatenate([contexts[user], _new(ids, int(draw.integers(1, 9)))])
        rows.append(contexts[user])
    return rows


def _new(ids: Iterator[int], size: int) -> np.ndarray:
    return np.array([next(ids) for _ in range(size)], np.int32)
