"""Host: datasets of recorded traces: times and lengths, and for Mooncake also the common prefixes of prompts.

Azure's traces are CSV files of TIMESTAMP, ContextTokens, GeneratedTokens (Patel et al., Splitwise, ISCA 2024).
Mooncake's are JSON lines of timestamp (milliseconds), input_length, output_length and hash_ids, one per block of 512
tokens (Qin et al., arXiv 2407.00079).
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from jaxserve.bench.serving.datasets.request_specs import Dataset, RequestSpec, Selection, Words, random_words
from jaxserve.bench.serving.options import TraceOptions
from jaxserve.core.errors import RequestError

BLOCK_TOKENS = 512
MAX_LEN = 1 << 24  # tokens; a longer request is invalid


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One request. at_s: time on the trace's clock. block_ids: ids of the prompt's blocks of 512 tokens, of which the
    last may be shorter; empty where the trace has none."""

    at_s: float
    input_len: int
    output_len: int
    block_ids: tuple[int, ...] = ()

    def check(self) -> None:
        """Raises `ValueError` for invalid lengths."""
        fits = not self.block_ids or len(self.block_ids) * BLOCK_TOKENS >= self.input_len
        if not (0 < self.input_len <= MAX_LEN and 0 < self.output_len <= MAX_LEN and fits):
            raise ValueError


def trace(options: TraceOptions, path: Path) -> Dataset:
    """The first requests within the length limit, in order of time; `RequestError` with the first invalid line."""
    limit = options.trace_max_len or 2 * MAX_LEN
    fitting = [entry for entry in read_arrival_trace(path) if entry.input_len + entry.output_len <= limit]

    def draw(selection: Selection) -> list[RequestSpec]:
        chosen = fitting[: selection.count_of(len(fitting), path)]
        words = selection.words()
        return [RequestSpec(_prompt(e, selection, words), e.output_len, e.at_s - chosen[0].at_s) for e in chosen]

    return draw


def read_arrival_trace(path: Path) -> list[TraceEntry]:
    """All requests, in order of time."""
    if path.suffix not in READERS:
        raise RequestError(f"{path}: a trace is a {' or a '.join(READERS)} file", "dataset_path")
    entries: list[TraceEntry] = []
    lines = READERS[path.suffix](path)
    while True:
        try:
            entry = next(lines)
            entry.check()
        except StopIteration:
            return sorted(entries, key=lambda e: e.at_s)
        except (ValueError, TypeError, KeyError, RecursionError, csv.Error):
            raise RequestError(
                f"{path}: request {len(entries)} is invalid: Azure's lines have TIMESTAMP,ContextTokens,"
                "GeneratedTokens, Mooncake's timestamp, input_length, output_length and hash_ids",
                "dataset_path",
            ) from None
        entries.append(entry)


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


def _prompt(entry: TraceEntry, selection: Selection, words: np.random.Generator) -> Words:
    """Words derived from the block ids; random words where the trace has none."""
    if not entry.block_ids:
        return Words(random_words(words, entry.input_len), entry.input_len)
    blocks = [random_words(selection.words(i), BLOCK_TOKENS) for i in entry.block_ids]
    return Words(np.concatenate(blocks), entry.input_len)
