"""Host: one frame of the live view as JSON of bounded size: sequences, KV pages, speeds and the last steps."""

from typing import Any, NamedTuple

import numpy as np
import orjson

from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.engine.serving.snapshot import CACHED, FREE, HELD, SHARED, Snapshot

MAX_SQUARES = 4096  # of the page map; more could not be distinguished on a screen


class Speeds(NamedTuple):
    """Means over the last seconds; None without a measurement. steps: [decode tokens, prompt tokens, padding, ms] of
    each of the last steps, the newest last."""

    tokens_per_s: float
    ttft_ms: float | None
    itl_ms: float | None
    steps: list[tuple[int, int, int, float]]


def speeds(metrics: EngineMetrics) -> Speeds:
    """The current speeds."""
    first_s, inter_s = metrics.recent_first_token_s, metrics.recent_inter_token_s
    steps = [(step.decode_tokens, step.prompt_tokens, step.padding, round(step.ms, 2)) for step in metrics.last_steps]
    return Speeds(metrics.tokens_per_s, first_s and first_s * 1000, inter_s and inter_s * 1000, steps)


def frame(taken: Snapshot, speeds: Speeds) -> bytes:
    """A snapshot and speeds as JSON.

    `pages`: the numbers that are free, cached, held by one sequence, and shared by several, with their `total`; `host`
    of `host_total` pages are in use in host memory. `map`: run lengths of squares, [state, length, state, length, …],
    states 0 to 3 in the order above; a square represents `pages_per_square` pages and shows their most frequent state.
    """
    counts = taken.count_pages()
    squares, pages_per_square = page_map(taken.pages[1:])  # without the scratch page
    pages: dict[str, Any] = {name: counts[name] for name in ("free", "cached", "held", "shared")}
    pages |= {"total": len(taken.pages) - 1, "host": taken.num_host_pages, "host_total": taken.max_host_pages}
    pages |= {"pages_per_square": pages_per_square, "map": runs(squares)}
    found = {"running": taken.num_running, "waiting": taken.num_waiting, **speeds._asdict(), "pages": pages}
    return orjson.dumps(found)


def page_map(pages: np.ndarray) -> tuple[np.ndarray, int]:
    """At most `MAX_SQUARES` squares (uint8 states) for any number of pages, and the pages per square.

    Of equally frequent states in a square the busier one is shown.
    """
    size = -(-len(pages) // MAX_SQUARES)
    if size == 1:
        return pages, 1
    missing = -len(pages) % size
    squares = np.pad(pages, (0, missing), constant_values=SHARED + 1).reshape(-1, size)
    counts = np.stack([(squares == state).sum(axis=1) for state in (SHARED, HELD, CACHED, FREE)])
    return SHARED - counts.argmax(axis=0).astype(np.uint8), size


def runs(values: np.ndarray) -> list[int]:
    """Run lengths of one or more values: [value, length, value, length, …]."""
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1
    return np.stack([values[ends - 1], np.diff(ends, prepend=0)], axis=1).ravel().tolist()
