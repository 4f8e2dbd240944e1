"""The page docs/benchmarks/batch-invariant.md."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.report_page import as_markdown, conditions, document, hardware_text, listing

INTRODUCTION = """# What `batch_invariant` costs

The same model in two engines of one process, one with `batch_invariant=True` and one without, which take turns; which
goes first changes from round to round. A ratio is the time with the option over the time without; that of a case is the
median over its rounds, in brackets the lowest and the highest. Times of a step are medians over steps."""
BUSY_LOAD = 0.5  # processes that wanted a core before this one did
BUSY = " **The machine was busy with other work**: times are too long, and ratios are wide."
LIMITS = """## Where the time goes

With the option every product is made of tiles of 32 rows (256 on accelerators), whether a batch fills them or not, and
attention takes 8 queries of a row at a time, so that a row that decodes computes eight. Weights are taken from their
stack once a tile. On TPUs and GPUs nothing of this has been measured."""


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """A heading and a row a case."""
    rows = [["", "without, ms", "with, ms", "ratio"]]
    for case, sides in record["seconds"].items():
        ratios = [b / a for a, b in zip(sides["fast"], sides["invariant"], strict=True)]
        times = [f"{1000 * median(sides[side]):,.0f}" for side in ("fast", "invariant")]
        rows.append([case, *times, f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"])
    return rows


def page(record: dict[str, Any], argv: Sequence[str]) -> str:
    found, (before, after) = record["differences"], record["load"]
    completions = [["", "different texts", "different log-probabilities", "others when recomputed"]] + [
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
            f"{record['num_completions']} greedy completions of one prompt beside as many random requests, and the "
            "log-probabilities of the random ones' outputs\nwhen their texts are computed again, as prompts:",
            as_markdown(completions),
            conditions(
                "scripts/bench_invariant",
                argv,
                hardware=hardware_text(record["hardware"]),
                model=f"{record['model']}, {record['dtype']}",
                versions=listing(record["versions"]),
                load=f"{before:.1f} before, {after:.1f} after: processes that want a core; this one among them after",
            ),
            LIMITS,
        ]
    )
