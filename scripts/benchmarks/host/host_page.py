"""Renders the page docs/benchmarks/host.md."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.host.measure_steps import PARTS
from scripts.benchmarks.report_page import as_markdown, conditions, document, hardware_text, listing

TARGETS_US = {
    "64 rows": {"total": 500},
    "256 rows": {"total": 900, "pack": 50, "commit, deltas": 200, "detokenize": 120},
}
"""Upper limits in µs of the median step, in total and by part."""

INTRODUCTION = """# The host's time for a decode step

The work of the engine thread for a step in which every slot decodes: it plans and submits the next step, reads and
commits the previous one, and detokenizes. Figures are microseconds of that thread's CPU time on one core, which it
shares with the nearly empty model. They exclude waiting for the device and the time of other processes, but include
cache misses that these cause. Each figure is the median over the steps of a round, then over the rounds; in brackets
the lowest and the highest round, whose distance shows the noise of the machine."""

METHOD = """## What is measured

- The model has one layer of width 8: packing, dispatch and reading are those of a real executable that computes little.
  Its vocabulary is an evenly spread sample of a real tokenizer's, small enough that the logits do not evict the host's
  data from the CPU caches: with 4,096 tokens, 256 rows have 4 MB of logits, and the host time was 1.2 ms instead of
  0.75.
- *dispatch* is the submission without packing: the call of the executable and the request for a copy of its output.
  *collect* is reading without the wait. *outputs* is the work of `OutputProcessor` around the engine: it routes tokens
  and detects finished samples. *detokenize* makes the texts of all rows: without streaming once at the end, divided by
  the number of steps; with streaming after each step.
- Every sequence samples at temperature 1 after a prompt of 16 to 48 tokens, without stop strings, penalties or
  log-probabilities. With waiting requests all slots stay occupied, so no request is admitted."""


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """The heading and one row per case."""
    rows = [["µs", *PARTS.values(), "total", "10 %", "90 %", "target"]]
    for case, rounds in record["rounds"].items():
        cells = [_spread([r["parts_us"][name] for r in rounds]) for name in PARTS.values()]
        totals = [_spread([r[key] for r in rounds]) for key in ("total_us", "p10_us", "p90_us")]
        target = TARGETS_US.get(case, {}).get("total")
        rows.append([case, *cells, *totals, "–" if target is None else f"{target:,}"])
    return rows


def verdicts(record: dict[str, Any]) -> list[str]:
    """One line per target of a measured case."""
    lines = []
    for case, targets in TARGETS_US.items():
        for name, target in targets.items():
            if rounds := record["rounds"].get(case):
                values = [r["total_us"] if name == "total" else r["parts_us"][name] for r in rounds]
                verdict = "met" if median(values) <= target else "**missed**"
                lines.append(f"- {case}, {name}: {median(values):,.0f} µs of {target}: {verdict}")
    return lines


def page(record: dict[str, Any], argv: Sequence[str]) -> str:
    before, after = record["load"]
    return document(
        [
            INTRODUCTION,
            conditions(
                "scripts/bench_host",
                argv,
                hardware=f"{hardware_text(record['hardware'])}; one of them for this process",
                versions=listing(record["versions"]),
                load=f"{before:.1f} before, {after:.1f} after: number of runnable processes, including this one",
                steps=f"{record['steps_of_a_round']} per round",
                vocabulary=f"{record['vocab_size']:,} tokens of {record['tokenizer']}",
            ),
            as_markdown(rows_of(record)),
            "\n".join(verdicts(record)),
            METHOD,
        ]
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"
