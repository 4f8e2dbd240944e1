"""`compare`: computes the figures of a comparison from the results of its rounds."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from scripts.benchmarks.compare.alternating_runs import Round

BUSY_SHARE = 0.05


@dataclass(frozen=True)
class Row:
    """One engine in one setting. rates: requested output tokens per second, one rate per round."""

    name: str
    rates: list[float]
    useful_share: float
    """Share of the generated tokens that requests asked for."""
    rss_bytes: int

    @property
    def rate(self) -> float:
        """The median: other guests of a machine slow down whole rounds by up to 1.4."""
        return median(self.rates)


@dataclass(frozen=True)
class Comparison:
    """rows: transformers, one row per batch size; the fastest one is the baseline."""

    jaxserve: Row
    rows: list[Row]
    equal_requests: float
    """Share of requests with the same tokens on both sides, in the first round."""
    equal_tokens: float
    """Share of tokens before the first difference of their request."""
    others_share: float
    """The largest share of CPU time that other processes used during one run of one side."""

    @property
    def best(self) -> Row:
        return max(self.rows, key=lambda row: row.rate)

    @property
    def ratio(self) -> float:
        return self.jaxserve.rate / self.best.rate

    @property
    def fastest_ratio(self) -> float:
        """Of each side's fastest round, which other guests have disturbed least."""
        return max(self.jaxserve.rates) / max(self.best.rates)

    @property
    def round_ratios(self) -> list[float]:
        """The ratio of each round, with the same batch size."""
        return [ours / theirs for ours, theirs in zip(self.jaxserve.rates, self.best.rates, strict=True)]

    @property
    def is_busy(self) -> bool:
        return self.others_share > BUSY_SHARE


def compare(rounds: list[Round], num_output_tokens: int) -> Comparison:
    ours = [r.jaxserve for r in rounds]
    rss_bytes = max(side["memory"]["rss_bytes"] for side in ours)
    jaxserve = Row("jaxserve", [side["output_throughput"] for side in ours], 1.0, rss_bytes)
    rows = [_row(rounds, size, num_output_tokens) for size in rounds[0].transformers["sizes"]]
    theirs = next(iter(rounds[0].transformers["sizes"].values()))["tokens"]
    requests, tokens = agreement(ours[0]["tokens"], theirs)
    shares = [share for r in rounds for share in (r.jaxserve_others_share, r.transformers_others_share)]
    return Comparison(jaxserve, rows, requests, tokens, max(shares))


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> tuple[float, float]:
    """Shares of equal requests, and of tokens before each request's first difference."""
    pairs = list(zip(ours, theirs, strict=True))
    prefixes = [_common(zip(a, b, strict=True)) for a, b in pairs]
    return mean(a == b for a, b in pairs), sum(prefixes) / sum(map(len, ours))


def _common(pairs: Iterable[tuple[int, int]]) -> int:
    count = 0
    for a, b in pairs:
        if a != b:
            break
        count += 1
    return count


def _row(rounds: list[Round], size: str, num_output_tokens: int) -> Row:
    runs: list[dict[str, Any]] = [r.transformers["sizes"][size] for r in rounds]
    rss_bytes = max(r.transformers["rss_bytes"] for r in rounds)
    rates = [num_output_tokens / run["elapsed_s"] for run in runs]
    return Row(f"transformers, batches of {size}", rates, num_output_tokens / runs[0]["num_computed"], rss_bytes)
