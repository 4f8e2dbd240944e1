"""Host: summaries of timed passes: rates, or latencies by request, under vLLM's keys where vLLM has them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxserve.core.outputs import RequestOutput

if TYPE_CHECKING:
    from jaxserve.bench.offline.measure import Pass

QUANTILES = (50, 90, 99)


def throughput(passes: "list[Pass]") -> dict[str, Any]:
    """Requests and tokens per second over all timed passes; elapsed_s lists the passes."""
    duration = sum(p.elapsed_s for p in passes)
    completed = sum(len(p.outputs) for p in passes)
    num_input = sum(p.workload.num_input_tokens for p in passes)
    num_output = sum(p.workload.num_output_tokens for p in passes)
    return {
        "duration": duration,
        "elapsed_s": [p.elapsed_s for p in passes],
        "completed": completed,
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": completed / duration,
        "input_throughput": num_input / duration,
        "output_throughput": num_output / duration,
        "total_token_throughput": (num_input + num_output) / duration,
    }


def latency(passes: "list[Pass]") -> dict[str, Any]:
    """Milliseconds per request, over all requests of all passes.

    ttft: from arrival to the first token; e2el: to the last; tpot: (e2el - ttft) / (output tokens - 1), left out where
    no request has two tokens.
    """
    outputs = [output for p in passes for output in p.outputs]
    times = [_times_ms(output) for output in outputs]
    samples = {
        "ttft": [first for first, _, _ in times],
        "tpot": [(end - first) / (count - 1) for first, end, count in times if count > 1],
        "e2el": [end for _, end, _ in times],
    }
    duration = sum(p.elapsed_s for p in passes)
    counts = {"completed": len(outputs), "duration": duration, "elapsed_s": [p.elapsed_s for p in passes]}
    return counts | {
        f"{name}_{figure}_ms": value
        for figure, values in samples.items()
        if values
        for name, value in _figures(values).items()
    }


def _figures(values: list[float]) -> dict[str, float]:
    points = np.percentile(values, QUANTILES).tolist()
    return {"mean": float(np.mean(values)), **{f"p{q}": point for q, point in zip(QUANTILES, points, strict=True)}}


def _times_ms(output: RequestOutput) -> tuple[float, float, int]:
    """Times of the first token and of the end, after arrival, and the number of tokens."""
    metrics = output.metrics
    if metrics is None or metrics.first_token_s is None or metrics.finish_s is None:
        raise RuntimeError(f"request {output.request_id} has no times")
    first, end = (1e3 * (time_s - metrics.arrival_s) for time_s in (metrics.first_token_s, metrics.finish_s))
    return first, end, len(output.outputs[0].token_ids)
