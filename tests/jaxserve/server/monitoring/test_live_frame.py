"""Frames of the live view: the map shows the pages' states, and its size does not grow with the pool."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jaxserve.engine.serving.snapshot import CACHED, FREE, HELD, SCRATCH, SHARED, Snapshot
from jaxserve.server.monitoring.live_frame import MAX_SQUARES, Speeds, frame, page_map, runs

STATES = st.sampled_from([FREE, CACHED, HELD, SHARED])
SPEEDS = Speeds(12.5, None, 3.25, [(8, 0, 0, 1.5), (7, 20, 5, 9.0)])


def unrolled(lengths: list[int]) -> list[int]:
    return [value for value, length in zip(lengths[::2], lengths[1::2], strict=True) for _ in range(length)]


def of(pages: np.ndarray) -> dict:
    """The frame of a pool with these pages, and the scratch page."""
    taken = Snapshot(2, 3, np.append(SCRATCH, pages), num_host_pages=4, max_host_pages=9)
    return json.loads(frame(taken, SPEEDS))


@given(arrays(np.uint8, st.integers(1, 300), elements=STATES))
def test_a_map_of_few_pages_names_each(pages):
    sent = of(pages)["pages"]
    assert unrolled(sent["map"]) == pages.tolist()
    assert sent["pages_per_square"] == 1
    counts = Counter(pages.tolist())
    assert [sent[name] for name in ("free", "cached", "held", "shared")] == [counts[state] for state in range(4)]
    assert sent["total"] == len(pages)


@given(arrays(np.uint8, st.integers(1, 300), elements=STATES))
def test_runs_are_maximal(pages):
    values = runs(pages)[::2]
    assert all(a != b for a, b in pairwise(values))


@pytest.mark.parametrize("num_pages", [MAX_SQUARES, MAX_SQUARES + 1, 2 * MAX_SQUARES + 1, 99_999])
def test_squares_of_a_large_pool_show_their_most_frequent_state(num_pages):
    pages = np.random.default_rng(0).integers(0, 4, num_pages).astype(np.uint8)
    squares, size = page_map(pages)
    assert len(squares) <= MAX_SQUARES
    assert (len(squares) - 1) * size < num_pages <= len(squares) * size
    for i, state in enumerate(squares.tolist()):
        counts = Counter(pages[i * size : (i + 1) * size].tolist())
        assert (counts[state], state) == max((count, state) for state, count in counts.items())
    sent = of(pages)["pages"]
    assert sum(sent[name] for name in ("free", "cached", "held", "shared")) == sent["total"] == num_pages
    assert unrolled(sent["map"]) == squares.tolist()


def test_a_frame_has_every_field():
    assert of(np.array([FREE, HELD, HELD], np.uint8)) == {
        "running": 2,
        "waiting": 3,
        "tokens_per_s": 12.5,
        "ttft_ms": None,
        "itl_ms": 3.25,
        "steps": [[8, 0, 0, 1.5], [7, 20, 5, 9.0]],
        "pages": {
            "free": 1, "cached": 0, "held": 2, "shared": 0, "total": 3,
            "host": 4, "host_total": 9, "pages_per_square": 1, "map": [0, 1, 2, 2],
        },
    }  # fmt: skip
