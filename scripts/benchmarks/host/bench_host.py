"""Measures what the host does for a decode step; run by scripts/bench_host."""

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
            for number in range(args.rounds + 1):  # the first round compiles, and is not counted
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
    """Leave one processor to this process, before JAX counts them; the last one, as the first serves interrupts."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench_host",
        description="The host's time for a decode step, by part, on one processor: medians of each round's steps, and "
        "of the rounds.",
    )
    parser.add_argument("--rows", type=count, nargs="+", default=[64, 256], help="sequences at once (default: 64 256)")
    parser.add_argument("--waiting", type=count, default=2000, help="requests that wait, in a second table row")
    parser.add_argument("--steps", type=count, default=400, help="steps of a round (default: 400)")
    parser.add_argument(
        "--rounds", type=count, default=5, help="rounds that count, after one that does not (default: 5)"
    )
    parser.add_argument(
        "--vocab-size", type=count, default=1024, help="tokens that the device draws from (default: 1024)"
    )
    parser.add_argument("--tokenizer", default="smollm2-135m-instruct", help="a model; its tokenizer makes the texts")
    parser.add_argument(
        "--out", type=Path, default=REPORT, help=f"page, with a .json beside it (default: {REPORT.name})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
