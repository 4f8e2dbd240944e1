"""Host: the JSON result of a run, under vLLM's keys, and the notes below its table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.client.request_result import RequestResult
from jaxserve.bench.serving.report.run_summary import input_len

BUSY = 0.8  # share of a core above which the client itself may limit the figures


def result_record(run: BenchmarkRun, summary: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run. setup: its settings. failures: by kind, the most frequent first, with its first message."""
    return {
        **setup,
        "num_prompts": len(run.requests),
        "max_concurrency": run.max_concurrency,
        **summary,
        **run.speculation,
        "interrupted": run.load.is_interrupted,
        "unanswered": run.load.num_sent - sum(result is not None for result in run.load.results),
        "unsent": len(run.requests) - run.load.num_sent,
        "failures": failures(run),
        "client_cpu_s": run.cpu_s,
        "client_cpu_share": run.cpu_share,
    }


def details(run: BenchmarkRun) -> dict[str, list[Any]]:
    """The additional keys of `--save-detailed`: a value per request, in the order of sending; None where it is missing.

    Times are in seconds.
    """
    results, start_s = run.load.results, run.load.start_s
    pairs = list(zip(results, run.requests, strict=True))
    return {
        "input_lens": [
            request.prompt_len if result is None else input_len(result, request) for result, request in pairs
        ],
        "output_lens": [result and result.output_len for result in results],
        "start_times": [result and result.sent_s - start_s for result in results],
        "ttfts": [result and result.ttft_s for result in results],
        "itls": [result and result.itls_s for result in results],
        "e2els": [result and result.e2el_s for result in results],
        "errors": [_error(result) for result in results],
    }


def failures(run: BenchmarkRun) -> list[dict[str, Any]]:
    """Failures by kind, the most frequent first, each with its count and first message."""
    found = [result.failure for result in run.load.results if result is not None and result.failure is not None]
    first = {failure.kind: failure.message for failure in reversed(found)}
    counts = Counter(failure.kind for failure in found)
    return [{"kind": kind, "count": count, "message": first[kind]} for kind, count in counts.most_common()]


def notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Lines below the table: the interrupt and the client's processor time."""
    if result["interrupted"]:
        yield f"interrupted: {result['unanswered']} requests were in flight, {result['unsent']} were not sent"
    share = result["client_cpu_share"]
    yield f"client: {result['client_cpu_s']:.2f} s of processor time, {share:.1%} of one core"
    if share > BUSY:
        yield "client: it may limit these figures; measure from another machine, or from several"


def _error(result: RequestResult | None) -> str:
    if result is None:
        return "not answered"
    return "" if result.failure is None else f"{result.failure.kind}: {result.failure.message}"
