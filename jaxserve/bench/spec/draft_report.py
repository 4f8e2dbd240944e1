"""Host: the report of a comparison of drafts: a table on the terminal, and a page with curves."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jaxserve.bench.charts.html_page import html_page, html_table
from jaxserve.bench.charts.svg import LineSeries, chart
from jaxserve.bench.report_table import comparison_table
from jaxserve.bench.spec.compare_drafts import DraftResult
from jaxserve.bench.spec.time_split import TimeSplit

if TYPE_CHECKING:
    from rich.table import Table

TIMES = {
    "drafting": "time: drafting, in passes with drafts",
    "verifying": "time: verification, in such passes",
    "other": "time: prompts, and steps without drafts",
    "host": "time: the host, with no step in flight",
}
"""Field of `TimeSplit` → its row."""
NONE = "–"


def _rows(results: Sequence[DraftResult]) -> Iterator[tuple[str, list[str]]]:
    """Each figure of all ways to draft."""
    yield "tokens/s with drafts", [f"{result.tokens_per_s:.1f}" for result in results]
    yield "tokens/s without", [f"{result.plain_tokens_per_s:.1f}" for result in results]
    yield "ratio of passes in turns, median", [f"{result.ratio:.2f}" for result in results]
    yield "tokens a pass, of rows that draft", [f"{result.tokens_a_pass:.2f}" for result in results]
    yield "draft tokens", [f"{result.num_drafted:,}" for result in results]
    yield "accepted", [f"{result.num_accepted / max(result.num_drafted, 1):.0%}" for result in results]
    for place in range(max(len(result.acceptance) for result in results)):
        yield f"accepted at position {place + 1}", [_share(result.acceptance[place:]) for result in results]
    yield "tokens drawn in such passes", [f"{result.drafting_share:.0%}" for result in results]
    for part, words in TIMES.items():
        yield words, [_part(result.time_split, part) for result in results]
    yield "time without waiting for the device", [f"{result.host_share:.0%}" for result in results]


def _share(found: Sequence[float]) -> str:
    """The first one of these, if there is one."""
    return f"{found[0]:.0%}" if found else NONE


def _part(split: TimeSplit | None, part: str) -> str:
    return NONE if split is None else f"{getattr(split, part):.1%}"


def draft_table(title: str, results: Sequence[DraftResult]) -> "Table":
    """A column of each way to draft."""
    return comparison_table(title, [result.name for result in results], _rows(results))


def draft_page(title: str, results: Sequence[DraftResult], facts: Mapping[str, object]) -> str:
    """The table, and how often each position was accepted."""
    curves = [
        LineSeries([(float(i), share) for i, share in enumerate(result.acceptance, start=1)], result.name, True)
        for result in results
        if result.acceptance
    ]
    body = (
        f"{html_table([result.name for result in results], _rows(results))}\n"
        f'<div class="charts">{chart("Share of passes in which a draft is accepted", "position", curves)}</div>'
    )
    return html_page(title, body, {**facts, **{result.name: json.dumps(dict(result.options)) for result in results}})
