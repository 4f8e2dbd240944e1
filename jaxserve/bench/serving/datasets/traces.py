"""Host: traces, replayed: recorded times and lengths, and of Mooncake's also what prompts have in common.

Azure's are CSV files of TIMESTAMP, ContextTokens, GeneratedTokens (Patel et al., Splitwise, ISCA 2024). Mooncake's are
JSON lines of timestamp (milliseconds), input_length, output_length, and hash_ids, one for each block of 512 tokens (Qin
et al., arXiv 2407.00079).
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from jaxserve.bench.serving.datasets.request_specs import Dataset, Draw, RequestSpec, Words, random_words
from jaxserve.bench.serving.options import TraceOptions
from jaxserve.core.errors import RequestError

BLOCK_TOKENS = 512
MAX_LEN = 1 << 24  # tokens; more is not a length


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request. at_s: on the trace's clock. block_ids: of the prompt's blocks of 512 tokens, the last one cut; empty
    where nothing is known."""

    at_s: float
    input_len: int
    output_len: int
    block_ids: tuple[int, ...] = ()

    def check(self) -> None:
        fits = not self.block_ids or len(self.block_ids) * BLOCK_TOKENS >= self.input_len
        if not (0 < self.input_len <= MAX_LEN and 0 < self.output_len <= MAX_LEN and fits):
            raise ValueError


def trace(options: TraceOptions, path: Path) -> Dataset:
    """The first requests that fit, in order of time. Raises `RequestError` naming the first line that is none."""
    limit = options.trace_max_len or 2 * MAX_LEN
    fitting = [r for r in read_trace(path) if r.input_len + r.output_len <= limit]

    def draw(wanted: Draw) -> list[RequestSpec]:
        chosen = fitting[: wanted.count_of(len(fitting), path)]
        unknown = wanted.words()
        return [RequestSpec(_prompt(r, wanted, unknown), r.output_len, r.at_s - chosen[0].at_s) for r in chosen]

    return draw


def read_trace(path: Path) -> list[TraceEntry]:
    """All requests, in order of time."""
    if path.suffix not in READERS:
        raise RequestError(f"{path}: a trace is a {' or a '.join(READERS)} file", "dataset_path")
    found, lines = [], READERS[path.suffix](path)
    while True:
        try:
            recorded = next(lines)
            recorded.check()
        except StopIteration:
            return sorted(found, key=lambda r: r.at_s)
        except (ValueError, TypeError, KeyError, RecursionError, csv.Error):
            raise RequestError(
                f"{path}: request {len(found)} is none: Azure's lines have TIMESTAMP,ContextTokens,GeneratedTokens, "
                "Mooncake's timestamp, input_length, output_length and hash_ids",
                "dataset_path",
            ) from None
        found.append(recorded)


def _azure(path: Path) -> Iterator[TraceEntry]:
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            at_s = datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC).timestamp()
            yield TraceEntry(at_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _mooncake(path: Path) -> Iterator[TraceEntry]:
    with path.open("rb") as lines:
        for line in lines:
            row = json.loads(line)
            ids = tuple(row["hash_ids"])
            if not all(type(i) is int and 0 <= i < 2**63 for i in ids):
                raise ValueError
            yield TraceEntry(float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"]), ids)


READERS = {".csv": _azure, ".jsonl": _mooncake}


def _prompt(recorded: TraceEntry, wanted: Draw, unknown: np.random.Generator) -> Words:
    """Words that follow from the blocks' ids, or, where there are none, any."""
    if not recorded.block_ids:
        return Words(random_words(unknown, recorded.input_len), recorded.input_len)
    blocks = [random_words(wanted.words(i), BLOCK_TOKENS) for i in recorded.block_ids]
    return Words(np.concatenate(blocks), recorded.input_len)
