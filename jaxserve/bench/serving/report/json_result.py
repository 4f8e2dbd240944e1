"""Host: the result of a run as JSON, with vLLM's keys, and the notes that go below its table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.client.reply import RequestResult
from jaxserve.bench.serving.report.summary import input_len

BUSY = 0.8  # share of a core from which on the client itself may be what is measured


def result(run: BenchmarkRun, summary: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any]:
    """setup: what was asked for. failures: the most frequent kind first, with what the first of them said."""
    return {
        **setup,
        "num_prompts": len(run.requests),
        "max_concurrency": run.max_concurrency,
        **summary,
        **run.speculation,
        "interrupted": run.load.is_interrupted,
        "unanswered": run.load.num_sent - sum(reply is not None for reply in run.load.replies),
        "unsent": len(run.requests) - run.load.num_sent,
        "failures": failures(run),
        "client_cpu_s": run.cpu_s,
        "client_cpu_share": run.cpu_share,
    }


def details(run: BenchmarkRun) -> dict[str, list[Any]]:
    """What `--save-detailed` adds, a value a request, in the order of sending; None where there is none. Seconds."""
    replies, start_s = run.load.replies, run.load.start_s
    pairs = list(zip(replies, run.requests, strict=True))
    return {
        "input_lens": [request.prompt_len if reply is None else input_len(reply, request) for reply, request in pairs],
        "output_lens": [reply and reply.output_len for reply in replies],
        "start_times": [reply and reply.sent_s - start_s for reply in replies],
        "ttfts": [reply and reply.ttft_s for reply in replies],
        "itls": [reply and reply.itls_s for reply in replies],
        "e2els": [reply and reply.e2el_s for reply in replies],
        "errors": [_error(reply) for reply in replies],
    }


def failures(run: BenchmarkRun) -> list[dict[str, Any]]:
    found = [reply.failure for reply in run.load.replies if reply is not None and reply.failure is not None]
    first = {failure.kind: failure.message for failure in reversed(found)}
    counts = Counter(failure.kind for failure in found)
    return [{"kind": kind, "count": count, "message": first[kind]} for kind, count in counts.most_common()]


def notes(result: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people: what was left out, and what the client took."""
    if result["interrupted"]:
        yield f"interrupted: {result['unanswered']} requests were under way, {result['unsent']} were not sent"
    share = result["client_cpu_share"]
    yield f"client: {result['client_cpu_s']:.2f} s of a processor, {share:.1%} of one core"
    if share > BUSY:
        yield "client: it may be what limits these figures; measure from another machine, or from several"


def _error(reply: RequestResult | None) -> str:
    if reply is None:
        return "not answered"
    return "" if reply.failure is None else f"{reply.failure.kind}: {reply.failure.message}"
