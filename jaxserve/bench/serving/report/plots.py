"""Host: the charts of a serving benchmark's report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.client.reply import RequestResult
from jaxserve.bench.serving.report.summary import figures_of, samples_ms, tokens_by_second
from jaxserve.bench.serving.report.svg import BarSeries, DotSeries, LineSeries, chart

NUM_BINS = 60
SHOWN_SHARE = 99.5  # percentile at which a distribution is cut, so that a few outliers do not flatten it
MAX_DOTS = 5000
SENT = "seconds after the start when it was sent"


def by_concurrency(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [str(result["max_concurrency"]) for result in results]

    def line(key: str, name: str) -> LineSeries:
        points = [(float(i), result[key]) for i, result in enumerate(results) if result[key] is not None]
        return LineSeries(points, name, shows_points=True)

    label = "requests at once, at most"
    yield chart("Output tokens a second", label, [line("output_throughput", "tokens/s")], x_names=names)
    for metric, title in (("ttft", "Time to first token, ms"), ("tpot", "Time per output token, ms")):
        figures = ("median", figures_of(metric, results[0])[-1])
        lines = [line(f"{figure}_{metric}_ms", figure.capitalize()) for figure in figures]
        yield chart(title, label, lines, x_names=names)


def of_run(run: BenchmarkRun) -> Iterator[str]:
    """Latency over time, its distributions, and what the server did meanwhile."""
    completed, start_s = run.completed, run.load.start_s
    replies = [reply for reply in run.load.replies if reply is not None]
    samples = samples_ms(completed)
    shown = completed[:: max(1, -(-len(completed) // MAX_DOTS))]
    ttft = [(reply.sent_s - start_s, 1e3 * reply.ttft_s) for reply in shown if reply.ttft_s is not None]
    yield chart("Time to first token, ms, over time", SENT, [DotSeries(ttft)])
    e2el = [(reply.sent_s - start_s, 1e3 * reply.e2el_s) for reply in shown]
    yield chart("End-to-end latency, ms, over time", SENT, [DotSeries(e2el)])
    yield _distribution("Time to first token, requests", samples["ttft"])
    yield _distribution("Inter-token latency, gaps between chunks", samples["itl"])
    rates = [(i + 0.5, rate) for i, rate in enumerate(tokens_by_second(completed, start_s))]
    yield chart("Output tokens a second, over time", "seconds after the start", [LineSeries(rates)])
    yield chart(
        "Requests under way, over time",
        "seconds after the start",
        [LineSeries(under_way(replies, start_s))],
        counts=True,
    )


def under_way(replies: Sequence[RequestResult], start_s: float) -> list[tuple[float, float]]:
    """Steps: how many there were from each moment on."""
    edges = sorted([(reply.sent_s, 1) for reply in replies] + [(reply.end_s, -1) for reply in replies])
    steps, count = [(0.0, 0.0)], 0
    for moment, change in edges:
        steps.append((moment - start_s, float(count)))
        count += change
        steps.append((moment - start_s, float(count)))
    return steps


def _distribution(title: str, values_ms: Sequence[float]) -> str:
    if not values_ms:
        return chart(title, "ms", [])
    values = np.array(values_ms)
    most = float(np.percentile(values, SHOWN_SHARE)) if len(values) > NUM_BINS else float(values.max())
    counts, edges = np.histogram(values, NUM_BINS, (0.0, most or 1.0))
    marks = [(float(np.percentile(values, p)), f"P{p}") for p in (50, 99)]
    beyond = int((values > most).sum())
    label = f"ms ({beyond} beyond)" if beyond else "ms"
    return chart(title, label, [BarSeries(edges.tolist(), counts.tolist())], marks=marks, counts=True)
