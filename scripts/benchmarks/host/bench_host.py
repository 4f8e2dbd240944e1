"""Measures the host time of a decode step; run by scripts/bench_host."""

import argparse
import os
import sys
from pathlib import Path

from jaxserve.bench import machine
from jaxserve.cli.args.arg_types import count

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "docs" / "benchmarks" / "host.md"


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    hardware, load = machine.host(), os.getloadavg()[0]
    pin()

    from scripts.benchmarks.host.empty_model_engine import make_engine, tokenizer_of
    from scripts.benchmarks.host.host_page import page, rows_of
    from scripts.benchmarks.host.measure_steps import LONGEST, MARGIN, Case, measure
    from scripts.benchmarks.report_page import as_text, machine_facts, write

    tokenizer = tokenizer_of(args.tokenizer)
    max_model_len = 2 * LONGEST + MARGIN + args.steps
    found = {}
    for num_rows in args.rows:
        print(f"{num_rows} rows: compiling", file=sys.stderr)
        llm = make_engine(tokenizer, num_rows, args.vocab_size, max_model_len)
        for case in (Case(num_rows), Case(num_rows, is_streaming=True), Case(num_rows, args.waiting)):
            found[str(case)] = []
            for number in range(args.rounds + 1):  # the first round compiles and is discarded
                print(f"{case}: round {number} of {args.rounds}", file=sys.stderr)
                found[str(case)].append(measure(llm, case, args.steps, seed=number))
            del found[str(case)][0]
    record = {
        "rounds": found,
        "steps_of_a_round": args.steps,
        "vocab_size": args.vocab_size,
        "tokenizer": Path(args.tokenizer).name,
        **machine_facts(load, hardware),
    }
    print(as_text(rows_of(record)))
    write(args.out, page(record, argv), record)
    return 0


def pin() -> None:
    """Binds this process to one core before JAX counts them: the last core, because the first serves interrupts."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench_host",
        description="Measure the host time of a decode step, by part, on one CPU core: the median over the steps of a "
        "round, then over the rounds.",
    )
    parser.add_argument("--rows", type=count, nargs="+", default=[64, 256], help="running sequences (default: 64 256)")
    parser.add_argument(
        "--waiting", type=count, default=2000, help="waiting requests of the cases with a queue (default: 2000)"
    )
    parser.add_argument("--steps", type=count, default=400, help="steps per round (default: 400)")
    parser.add_argument(
        "--rounds", type=count, default=5, help="measured rounds, after one that is discarded (default: 5)"
    )
    parser.add_argument("--vocab-size", type=count, default=1024, help="size of the model's vocabulary (default: 1024)")
    parser.add_argument(
        "--tokenizer", default="smollm2-135m-instruct", help="model whose tokenizer is used (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=REPORT,
        help=f"path of the page; figures go to a .json file next to it (default: {REPORT.name})",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
