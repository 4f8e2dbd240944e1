"""Measures the cost and the effect of `batch_invariant`; run by scripts/bench_invariant."""

import argparse
import os
import sys
from pathlib import Path

from jaxserve.bench import machine
from jaxserve.cli.args.arg_types import count
from jaxserve.engine.llm import LLM
from scripts.benchmarks.invariant.invariant_cases import (
    CASES,
    MAX_BATCHED_TOKENS,
    MAX_ROWS,
    differences,
    longest,
    seconds_of,
)
from scripts.benchmarks.invariant.invariant_page import page, rows_of
from scripts.benchmarks.report_page import as_text, machine_facts, write

REPORT = Path(__file__).parents[3] / "docs" / "benchmarks" / "batch-invariant.md"
SIDES = {"fast": False, "invariant": True}


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    load = os.getloadavg()[0]
    engines = {
        side: LLM(
            args.model,
            dtype=args.dtype,
            batch_invariant=is_invariant,
            max_model_len=longest(args.steps),
            max_num_seqs=MAX_ROWS,
            max_num_batched_tokens=MAX_BATCHED_TOKENS,
            max_decode_rounds=1,  # one token per step
        )
        for side, is_invariant in SIDES.items()
    }
    seconds: dict[str, dict[str, list[float]]] = {str(case): {side: [] for side in SIDES} for case in CASES}
    for number in range(args.rounds + 1):  # the first round compiles and is discarded
        for case in CASES:
            for side in list(SIDES)[:: 1 if number % 2 else -1]:
                taken = seconds_of(engines[side], case, args.steps, seed=number)
                print(f"round {number} of {args.rounds}, {case}, {side}: {1000 * taken:.1f} ms", file=sys.stderr)
                if number > 0:
                    seconds[str(case)][side].append(taken)
    record = {
        "seconds": seconds,
        "num_completions": args.completions,
        "differences": {side: differences(llm, args.completions) for side, llm in engines.items()},
        "steps": args.steps,
        "dtype": args.dtype,
        "model": Path(args.model).name,
        **machine_facts(load, machine.host()),
    }
    print(as_text(rows_of(record)))
    write(args.out, page(record, argv), record)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench_invariant",
        description="Measure decode steps and prompts with batch_invariant, relative to the times without it, and "
        "count the different completions of one prompt among random requests. Both engines alternate in one process.",
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="default: %(default)s")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="default: %(default)s")
    parser.add_argument(
        "--rounds", type=count, default=5, help="measured rounds, after one that is discarded (default: %(default)s)"
    )
    parser.add_argument("--steps", type=count, default=24, help="timed steps per case (default: %(default)s)")
    parser.add_argument(
        "--completions", type=count, default=64, help="completions of the prompt (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=REPORT, help="path of the page; figures go to a .json file next to it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
