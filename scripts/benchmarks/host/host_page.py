"""The page docs/benchmarks/host.md."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.benchmarks.host.measure_steps import PARTS
from scripts.benchmarks.report_page import as_markdown, conditions, document, hardware_text, listing

TARGETS_US = {
    "64 rows": {"total": 500},
    "256 rows": {"total": 900, "pack": 50, "commit, deltas": 200, "detokenize": 120},
}
"""Of issue 6."""

INTRODUCTION = """# The host's time for a decode step

What one thread does for a step in which every slot decodes: it plans and submits the next step, reads and commits the
one before, and makes the texts. Microseconds of that thread's processor time on one processor, which it shares with the
(all but empty) model: waiting for the device is not in them, nor is what other processes take, but for the caches that
these empty. Each figure is the median over the steps of a round, then over the rounds; in brackets the lowest and the
highest round. The ends of the brackets tell how noisy the machine was."""

METHOD = """## What is measured

- The model has one layer of width 8: packing, dispatch and reading are those of a real executable, whose own work is
  small. It draws from a vocabulary that is a sample of a real tokenizer's, spread evenly over it, and small enough that
  its logits leave the processor's caches to the host: with 4,096 tokens 256 rows have 4 MB of them, and the host's part
  took 1.2 ms instead of 0.75.
- *dispatch* is the submission without packing: the call of the executable, and asking for a copy of its output.
  *collect* is reading without the wait. *jobs* is what `OutputProcessor` does around the engine: it routes tokens and
  finds ends. *detokenize* makes the texts of all rows: at the end, all tokens at once, spread over the steps; or after
  each step, as streams do.
- Every sequence draws at temperature 1 from a prompt of 16 to 48 tokens; there are no stop strings, penalties or
  log-probabilities. With requests waiting, all slots stay taken, so nobody is admitted."""


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """A heading and a row a case."""
    rows = [["µs", *PARTS.values(), "total", "10 %", "90 %", "target"]]
    for case, rounds in record["rounds"].items():
        cells = [_spread([r["parts_us"][name] for r in rounds]) for name in PARTS.values()]
        totals = [_spread([r[key] for r in rounds]) for key in ("total_us", "p10_us", "p90_us")]
        target = TARGETS_US.get(case, {}).get("total")
        rows.append([case, *cells, *totals, "–" if target is None else f"{target:,}"])
    return rows


def verdicts(record: dict[str, Any]) -> list[str]:
    """A line for each target that was measured."""
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
                hardware=f"{hardware_text(record['hardware'])}; this process on one of them",
                versions=listing(record["versions"]),
                load=f"{before:.1f} before, {after:.1f} after: processes that want a core, this one among them",
                steps=f"{record['steps_of_a_round']} a round",
                vocabulary=f"{record['vocab_size']:,} tokens of {record['tokenizer']}",
            ),
            as_markdown(rows_of(record)),
            "\n".join(verdicts(record)),
            METHOD,
        ]
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})"
