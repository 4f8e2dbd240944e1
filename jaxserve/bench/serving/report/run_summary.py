"""Host: `summarize`: the figures of a run, with the names and definitions of `vllm bench serve`.

TTFT: from sending to the first chunk with tokens. TPOT: (E2EL - TTFT) / (output tokens - 1). ITL: gaps between chunks,
which may hold several tokens. E2EL: from sending to the end of the text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxserve.bench.serving.client.request_result import RequestResult
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest
from jaxserve.bench.serving.load_generator import LoadResult


def summarize(
    load: LoadResult, requests: Sequence[BenchRequest], *, goodput_ms: Mapping[str, float], percentiles: Sequence[float]
) -> dict[str, Any]:
    """The figures of a run; None where there are no samples.

    goodput_ms: limits of the metrics of a good request; empty for no goodput. percentiles: from 0 to 100.
    """
    duration = load.end_s - load.start_s
    answered = [(result, request) for result, request in zip(load.results, requests, strict=True) if result is not None]
    completed = [result for result, _ in answered if result.failure is None]
    num_input = sum(input_len(result, request) or 0 for result, request in answered if result.failure is None)
    num_output = sum(result.output_len for result in completed)

    def rate(count: float) -> float | None:
        return count / duration if duration > 0 else None

    found = {
        "duration": duration,
        "completed": len(completed),
        "failed": len(answered) - len(completed),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": rate(len(completed)),
        "request_goodput": rate(sum(is_good(result, goodput_ms) for result in completed)) if goodput_ms else None,
        "output_throughput": rate(num_output),
        "total_token_throughput": rate(num_input + num_output),
        "max_output_tokens_per_s": max(tokens_by_second(completed, load.start_s), default=None),
        "max_concurrent_requests": most_at_once([result for result, _ in answered]),
    }
    for name, values in samples_ms(completed).items():
        found |= {f"{figure}_{name}_ms": value for figure, value in _figures(values, percentiles).items()}
    return found


def samples_ms(completed: Sequence[RequestResult]) -> dict[str, list[float]]:
    """Milliseconds by metric; for ITL all gaps of all requests."""
    seconds = {
        "ttft": [result.ttft_s for result in completed],
        "tpot": [result.tpot_s for result in completed],
        "itl": [gap for result in completed for gap in result.itls_s],
        "e2el": [result.e2el_s for result in completed],
    }
    return {name: [1e3 * value for value in values if value is not None] for name, values in seconds.items()}


def is_good(result: RequestResult, limits_ms: Mapping[str, float]) -> bool:
    """Whether a request kept all limits; a metric that it lacks counts as kept."""
    taken_s = {"ttft": result.ttft_s, "tpot": result.tpot_s, "e2el": result.e2el_s}
    return all(1e3 * (taken_s[name] or 0.0) <= limit for name, limit in limits_ms.items())


def input_len(result: RequestResult, request: BenchRequest) -> int | None:
    """The server's count, or else the local one."""
    return request.prompt_len if result.input_len is None else result.input_len


def tokens_by_second(completed: Sequence[RequestResult], start_s: float) -> list[float]:
    """Output tokens in each second from the start on; the tokens of a request are divided equally among its chunks."""
    chunks = [
        (arrival_s - start_s, result.output_len / len(result.token_s))
        for result in completed
        for arrival_s in result.token_s
    ]
    if not chunks:
        return []
    table = np.array(chunks)
    return np.bincount(table[:, 0].astype(int), table[:, 1]).tolist()


def in_flight(results: Sequence[RequestResult], start_s: float) -> list[tuple[float, float]]:
    """The number of requests in flight over time, as the corners of a step function.

    A request that ends as another is sent does not overlap it.
    """
    edges = sorted([(result.sent_s, 1) for result in results] + [(result.end_s, -1) for result in results])
    steps, count = [(0.0, 0.0)], 0
    for edge_s, change in edges:
        steps.append((edge_s - start_s, float(count)))
        count += change
        steps.append((edge_s - start_s, float(count)))
    return steps


def most_at_once(results: Sequence[RequestResult]) -> int:
    """The maximum of requests in flight."""
    return int(max(count for _, count in in_flight(results, 0.0)))


def figures_of(metric: str, result: Mapping[str, Any]) -> list[str]:
    """The figures of a metric in a result: mean, median, std, p99 and so on."""
    suffix = f"_{metric}_ms"
    return [key.removesuffix(suffix) for key in result if key.endswith(suffix)]


def percentile_name(percentile: float) -> str:
    """p99, p99.9"""
    return f"p{percentile:g}"


def _figures(values: list[float], percentiles: Sequence[float]) -> dict[str, float | None]:
    points = [percentile_name(p) for p in percentiles]
    if not values:
        return dict.fromkeys(["mean", "median", "std", *points])
    found = {"mean": np.mean(values), "median": np.median(values), "std": np.std(values)}
    found |= dict(zip(points, np.percentile(values, percentiles), strict=True))
    return {name: float(value) for name, value in found.items()}
