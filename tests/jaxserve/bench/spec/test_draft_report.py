"""Table and page of a comparison have every figure as a number."""

import re

from jaxserve.bench.spec.compare_drafts import DraftResult
from jaxserve.bench.spec.draft_report import draft_page, draft_table
from jaxserve.bench.spec.time_split import TimeSplit


def result(name: str, acceptance: list[float], split: TimeSplit | None) -> DraftResult:
    return DraftResult(
        name=name,
        options={"method": name},
        tokens_per_s=30.0,
        plain_tokens_per_s=20.0,
        ratio=1.5,
        tokens_a_pass=1 + sum(acceptance),
        num_drafted=100,
        num_accepted=round(50 * sum(acceptance)),
        acceptance=acceptance,
        drafting_share=0.9,
        time_split=split,
        host_share=0.25,
    )


RESULTS = [
    result("ngram", [0.75, 0.5], TimeSplit(0.011, 0.722, 0.133, 0.134)),
    result("medusa", [0.5], None),
    result("suffix", [], TimeSplit(0.0, 0.0, 0.9, 0.1)),
]
EXPECTED = {
    "tokens a pass, of rows that draft": ["2.25", "1.50", "1.00"],
    "accepted at position 1": ["75%", "50%", "–"],
    "accepted at position 2": ["50%", "–", "–"],
    "time: drafting, in passes with drafts": ["1.1%", "–", "0.0%"],
    "time: verification, in such passes": ["72.2%", "–", "0.0%"],
    "time: prompts, and steps without drafts": ["13.3%", "–", "90.0%"],
    "time: the host, with no step in flight": ["13.4%", "–", "10.0%"],
    "time without waiting for the device": ["25%", "25%", "25%"],
}


def test_the_table_has_a_row_of_each_figure_and_position():
    columns = [list(column.cells) for column in draft_table("t", RESULTS).columns]
    shown = {name: cells for name, *cells in zip(*columns, strict=True)}
    assert EXPECTED.items() <= shown.items()
    assert len(shown) == len(EXPECTED) + 6


def test_the_page_has_the_same_rows_and_a_curve_of_each_way_with_accepted_drafts():
    page = draft_page("t", RESULTS, {})
    rows = {
        name: re.findall("<td>(.*?)</td>", cells) for name, cells in re.findall("<tr><th>(.*?)</th>(.*?)</tr>", page)
    }
    assert EXPECTED.items() <= rows.items()
    assert page.count("<polyline") == 2
