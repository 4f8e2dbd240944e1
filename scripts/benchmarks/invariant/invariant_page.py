"""Renders the page docs/benchmarks/batch-invariant.md."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.report_page import as_markdown, conditions, document, hardware_text, listing

INTRODUCTION = """# The cost of `batch_invariant`

The same model runs in two engines of one process, alternately with and without `batch_invariant=True`; the order
changes from round to round. A ratio is the time with the option divided by the time without it; that of a case is the
median over its rounds, in brackets the lowest and the highest. Times of a step are medians over steps."""
BUSY_LOAD = 0.5  # runnable processes before the run
BUSY = " **Other processes ran meanwhile**: times are too long, and ratios vary widely."
LIMITS = """## Where the time goes

With the option every matrix product runs in tiles of 32 rows (256 on accelerators), even where a batch does not fill
them, and attention processes 8 queries of a row at a time, so a decode row computes eight. Each tile reads the weights
of a layer from their stack once. On TPUs and GPUs none of this has been measured."""


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """The heading and one row per case."""
    rows = [["", "without, ms", "with, ms", "ratio"]]
    for case, sides in record["seconds"].items():
        ratios = [b / a for a, b in zip(sides["fast"], sides["invariant"], strict=True)]
        times = [f"{1000 * median(sides[side]):,.0f}" for side in ("fast", "invariant")]
        rows.append([case, *times, f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"])
    return rows


def page(record: dict[str, Any], argv: Sequence[str]) -> str:
    found, (before, after) = record["differences"], record["load"]
    completions = [["", "different texts", "different log-probabilities", "changed by recomputing"]] + [
        [
            name,
            *(str(found[side][what]) for what in ("texts", "log-probabilities")),
            f"{found[side]['recomputed otherwise']:,} of {found[side]['recomputed']:,}",
        ]
        for side, name in (("fast", "without"), ("invariant", "with"))
    ]
    return document(
        [
            INTRODUCTION + (BUSY if before > BUSY_LOAD else ""),
            as_markdown(rows_of(record)),
            f"{record['num_completions']} greedy completions of one prompt, batched with as many random requests, and "
            "the log-probabilities\nof the random requests' outputs when their texts are recomputed as prompts:",
            as_markdown(completions),
            conditions(
                "scripts/bench_invariant",
                argv,
                hardware=hardware_text(record["hardware"]),
                model=f"{record['model']}, {record['dtype']}",
                versions=listing(record["versions"]),
                load=f"{before:.1f} before, {after:.1f} after: runnable processes; the second includes this one",
            ),
            LIMITS,
        ]
    )
