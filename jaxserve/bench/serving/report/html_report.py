"""Host: `page`: the report of a serving benchmark as one self-contained HTML file, for light and dark mode."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from jaxserve.bench.charts.html_page import html_page
from jaxserve.bench.serving.benchmark import BenchmarkRun
from jaxserve.bench.serving.report import plots
from jaxserve.bench.serving.report.json_result import notes
from jaxserve.bench.serving.report.run_summary import figures_of
from jaxserve.bench.serving.report.text_table import ROWS, TITLES, cell


def page(runs: Sequence[BenchmarkRun], results: Sequence[Mapping[str, Any]], setup: Mapping[str, Any]) -> str:
    """The page of all runs. results: one per run, in the same order, from `json_result.result`."""
    by_concurrency = list(plots.by_concurrency(results)) if len(results) > 1 else list[str]()
    sections = "".join(_section(run, result) for run, result in zip(runs, results, strict=True))
    body = f'{_table(results)}\n<div class="charts">{"".join(by_concurrency)}</div>\n{sections}'
    return html_page(f"{setup['model_id']}: serving benchmark", body, setup)


def _section(run: BenchmarkRun, result: Mapping[str, Any]) -> str:
    name = "Run" if run.max_concurrency is None else f"At most {run.max_concurrency} requests at once"
    items = "".join(f"<li>{escape(note)}</li>" for note in notes(result))
    charts = "".join(plots.of_run(run))
    failed = "".join(
        f"<tr><th>{escape(failure['kind'])}</th><td>{failure['count']}</td><th>{escape(failure['message'])}</th></tr>"
        for failure in result["failures"]
    )
    table = f"<h3>Failed requests by kind</h3>\n<table>{failed}</table>" if failed else ""
    return f'<h2>{name}</h2>\n<ul>{items}</ul>\n{table}<div class="charts">{charts}</div>'


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    """The table of all figures, with a column per run."""
    rows = [(label.rstrip(":"), key, form) for label, key, form in ROWS]
    rows += [
        (f"{figure.capitalize()} {metric.upper()} (ms)", f"{figure}_{metric}_ms", "{:.2f}")
        for metric in TITLES
        for figure in figures_of(metric, results[0])
    ]

    def cells(key: str, form: str) -> str:
        return "".join(f"<td>{escape(cell(result[key], form))}</td>" for result in results)

    lines = (
        f"<tr><th>{escape(label)}</th>{cells(key, form)}</tr>"
        for label, key, form in rows
        if any(result[key] is not None for result in results)
    )
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'
