"""Host: the charts in the report of a serving benchmark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxserve.bench.charts.svg import BarSeries, DotSeries, LineSeries, chart
from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.report.run_summary import figures_of, in_flight, samples_ms, tokens_by_second

NUM_BINS = 60
SHOWN_PERCENTILE = 99.5  # where a histogram is cut off, so that a few outliers do not flatten it
MAX_DOTS = 5000
SENT = "seconds from the start to sending"


def by_concurrency(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Throughput and latencies over the concurrency of the runs."""
    names = [str(result["max_concurrency"]) for result in results]

    def line(key: str, name: str) -> LineSeries:
        points = [(float(i), result[key]) for i, result in enumerate(results) if result[key] is not None]
        return LineSeries(points, name, shows_points=True)

    label = "limit of requests at once"
    yield chart("Output tokens per second", label, [line("output_throughput", "tokens/s")], x_names=names)
    for metric, title in (("ttft", "Time to first token, ms"), ("tpot", "Time per output token, ms")):
        figures = ("median", figures_of(metric, results[0])[-1])
        lines = [line(f"{figure}_{metric}_ms", figure.capitalize()) for figure in figures]
        yield chart(title, label, lines, x_names=names)


def of_run(run: BenchmarkRun) -> Iterator[str]:
    """Charts of one run: latencies over time, their distributions, output rate and requests in flight over time."""
    completed, start_s = run.completed, run.load.start_s
    results = [result for result in run.load.results if result is not None]
    samples = samples_ms(completed)
    shown = completed[:: max(1, -(-len(completed) // MAX_DOTS))]
    ttft = [(result.sent_s - start_s, 1e3 * result.ttft_s) for result in shown if result.ttft_s is not None]
    yield chart("Time to first token, ms, over time", SENT, [DotSeries(ttft)])
    e2el = [(result.sent_s - start_s, 1e3 * result.e2el_s) for result in shown]
    yield chart("End-to-end latency, ms, over time", SENT, [DotSeries(e2el)])
    yield _distribution("Time to first token, requests", samples["ttft"])
    yield _distribution("Inter-token latency, gaps between chunks", samples["itl"])
    rates = [(i + 0.5, rate) for i, rate in enumerate(tokens_by_second(completed, start_s))]
    yield chart("Output tokens per second, over time", "seconds after the start", [LineSeries(rates)])
    yield chart(
        "Requests in flight, over time",
        "seconds after the start",
        [LineSeries(in_flight(results, start_s))],
        counts=True,
    )


def _distribution(title: str, values_ms: Sequence[float]) -> str:
    if not values_ms:
        return chart(title, "ms", [])
    values = np.array(values_ms)
    most = float(np.percentile(values, SHOWN_PERCENTILE)) if len(values) > NUM_BINS else float(values.max())
    counts, edges = np.histogram(values, NUM_BINS, (0.0, most or 1.0))
    marks = [(float(np.percentile(values, p)), f"P{p}") for p in (50, 99)]
    beyond = int((values > most).sum())
    label = f"ms ({beyond} beyond)" if beyond else "ms"
    return chart(title, label, [BarSeries(edges.tolist(), counts.tolist())], marks=marks, counts=True)
