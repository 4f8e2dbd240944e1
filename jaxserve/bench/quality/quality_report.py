"""Host: the report of a comparison of models on a text: a table on the terminal, and a page with a plot."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxserve.bench.charts.html_page import html_page, html_table
from jaxserve.bench.charts.svg import LineSeries, chart
from jaxserve.bench.report_table import comparison_table

if TYPE_CHECKING:
    from rich.table import Table

    from jaxserve.bench.quality.compare_quality import Quality  # which imports jax


def _rows(results: "Sequence[Quality]") -> Iterator[tuple[str, list[str]]]:
    """Each figure of all models."""
    first = results[0]
    yield "packed", [result.packed or "-" for result in results]
    yield "decoded from", [result.decoded or "-" for result in results]
    yield "weights, MB", [f"{result.num_bytes / 1e6:,.1f}" for result in results]
    yield "perplexity", [f"{result.perplexity:.3f}" for result in results]
    yield "over that of the first", [f"{result.perplexity / first.perplexity:.4f}" for result in results]
    yield "divergence from the first, nats", [f"{result.divergence:.5f}" for result in results]
    yield "same likeliest token", [f"{result.agreement:.2%}" for result in results]
    yield "tokens/s of the text", [f"{result.tokens_per_s:,.0f}" for result in results]
    yield f"tokens/s of {first.num_decoded} texts, decoding", [f"{result.decoded_per_s:,.0f}" for result in results]


def quality_table(title: str, results: "Sequence[Quality]") -> "Table":
    """A column of each model."""
    return comparison_table(title, [result.name for result in results], _rows(results))


def quality_page(title: str, results: "Sequence[Quality]", facts: Mapping[str, object]) -> str:
    """The table, divergence over size, and over the speed of decoding."""

    def divergences(x_label: str, values: Sequence[float]) -> str:
        pairs = zip(results, values, strict=True)
        points = [LineSeries([(value, result.divergence)], result.name, True) for result, value in pairs]
        return chart("Divergence from the first model, nats", x_label, points)

    of_bytes = divergences("MB of weights", [result.num_bytes / 1e6 for result in results])
    of_speed = divergences("tokens/s, decoding", [result.decoded_per_s for result in results])
    table = html_table([result.name for result in results], _rows(results))
    body = f'{table}\n<div class="charts">{of_bytes}{of_speed}</div>'
    return html_page(title, body, facts)
