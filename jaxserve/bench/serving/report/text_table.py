"""Host: `table`: the figures of a run, in the same lines as `vllm bench serve` prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WIDTH = 50
TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
# (label, key of the result, format); rows in `IF_SET` appear only if their value is a number.
ROWS = (
    ("Successful requests:", "completed", "{}"),
    ("Failed requests:", "failed", "{}"),
    ("Maximum request concurrency:", "max_concurrency", "{}"),
    ("Request rate configured (RPS):", "request_rate", "{:.2f}"),
    ("Benchmark duration (s):", "duration", "{:.2f}"),
    ("Total input tokens:", "total_input_tokens", "{}"),
    ("Total generated tokens:", "total_output_tokens", "{}"),
    ("Request throughput (req/s):", "request_throughput", "{:.2f}"),
    ("Request goodput (req/s):", "request_goodput", "{:.2f}"),
    ("Output token throughput (tok/s):", "output_throughput", "{:.2f}"),
    ("Peak output token throughput (tok/s):", "max_output_tokens_per_s", "{:.2f}"),
    ("Peak concurrent requests:", "max_concurrent_requests", "{:.2f}"),
    ("Total token throughput (tok/s):", "total_token_throughput", "{:.2f}"),
)
SPECULATION = (
    ("Acceptance rate (%):", "spec_decode_acceptance_rate", "{:.2f}"),
    ("Acceptance length:", "spec_decode_acceptance_length", "{:.2f}"),
    ("Drafts:", "spec_decode_num_drafts", "{}"),
    ("Draft tokens:", "spec_decode_draft_tokens", "{}"),
    ("Accepted tokens:", "spec_decode_accepted_tokens", "{}"),
)
IF_SET = ("max_concurrency", "request_rate", "request_goodput")


def table(result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[str]) -> str:
    """The table of a result. metrics: keys of `TITLES`. percentiles: their names in the result's keys, such as p99."""
    return "\n".join(_lines(result, metrics, percentiles))


def _lines(result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[str]) -> Iterator[str]:
    yield f"{' Serving Benchmark Result ':=^{WIDTH}}"
    for label, key, form in ROWS:
        if key not in IF_SET or isinstance(result[key], int | float):  # a rate may be "inf" or "trace"
            yield _row(label, result[key], form)
    for metric in metrics:
        yield f"{TITLES[metric]:-^{WIDTH}}"
        for figure in ("mean", "median", *percentiles):
            yield _row(f"{figure.capitalize()} {metric.upper()} (ms):", result[f"{figure}_{metric}_ms"], "{:.2f}")
    if "spec_decode_num_drafts" in result:
        yield f"{'Speculative Decoding':-^{WIDTH}}"
        yield from (_row(label, result[key], form) for label, key, form in SPECULATION)
        yield "Per-position acceptance (%):"
        for i, rate in enumerate(result["spec_decode_per_position_acceptance_rates"]):
            yield _row(f"  Position {i}:", 100 * rate, "{:.2f}")
    yield "=" * WIDTH


def failure_lines(failures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line per kind of failure: count and first message; nothing without failures."""
    if failures:
        yield f"{'Failed requests by kind':-^{WIDTH}}"
    for failure in failures:
        yield f"{failure['kind'] + ':':<40} {failure['count']:<10} {failure['message']}"


def cell(value: float | str | None, form: str) -> str:
    """A formatted figure; "-" for None."""
    return form.format(value) if isinstance(value, int | float) else str(value or "-")


def _row(label: str, value: float | None, form: str) -> str:
    return f"{label:<40} {cell(value, form):<10}"
