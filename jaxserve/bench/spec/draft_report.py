"""Host: the report of a comparison of drafts: a table on the terminal, and a page with curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxserve.bench.charts.html_page import html_page, html_table
from jaxserve.bench.charts.svg import LineSeries, chart
from jaxserve.bench.report_table import report_table
from jaxserve.bench.spec.compare_drafts import DraftResult

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = "tokens/s", "without", "ratio", "tokens a pass", "accepted", "in such passes", "verify", "host"
NOTES = (
    "ratio: with drafts over without, the median of passes in turns. tokens a pass: of a row that drafts. accepted: of "
    "the draft tokens. in such passes: share of the tokens. verify: share of the device's time in buckets with drafts. "
    "host: share of the time in which the host did not wait."
)


def _cells(result: DraftResult) -> list[str]:
    accepted = result.num_accepted / max(result.num_drafted, 1)
    return [
        f"{result.tokens_per_s:.1f}",
        f"{result.plain_tokens_per_s:.1f}",
        f"{result.ratio:.2f}",
        f"{result.tokens_a_pass:.2f}",
        f"{result.num_accepted:,} of {result.num_drafted:,} ({accepted:.0%})",
        f"{result.drafting_share:.0%}",
        f"{result.verify_share:.0%}",
        f"{result.host_share:.0%}",
    ]


def draft_table(title: str, results: Sequence[DraftResult]) -> "Table":
    """A row of each way to draft."""
    table = report_table(title, "drafts", *COLUMNS)
    for result in results:
        table.add_row(result.name, *_cells(result))
    return table


def draft_page(title: str, results: Sequence[DraftResult], facts: Mapping[str, object]) -> str:
    """The table, and how often each position was accepted."""
    curves = [
        LineSeries([(float(i), share) for i, share in enumerate(result.acceptance, start=1)], result.name, True)
        for result in results
        if result.acceptance
    ]
    body = (
        f"{html_table(COLUMNS, [(result.name, _cells(result)) for result in results])}\n<p>{NOTES}</p>\n"
        f'<div class="charts">{chart("Share of passes in which a draft is accepted", "position", curves)}</div>'
    )
    return html_page(title, body, facts)
