"""Rows with adapters compute what merged weights compute; thousands of adapters cost what five do, and none nothing.

Texts of SmolLM2 in float32 are compared with the model that has the adapter in its weights: log-probabilities to 1e-4,
and each greedy token is the likeliest one there (`scripts/proofs/lora/merged_scores.py`) or a tie within 1e-5; these
are counted. Adapters are random, and no number in them is zero. Speeds are of bfloat16, in turns. Rows are stored in
.cache/proofs: an interrupted run continues as long as the sources are unchanged.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial

from scripts.proofs.helpers.laws import Law, broken, lines_of
from scripts.proofs.helpers.stored_rows import in_process, stored_row
from scripts.proofs.lora.proof_sizes import Sizes

WAYS = (
    "tensor-parallel 3",
    "chunks of 7",
    "preempted",
    "fewer places than adapters",
    "n-gram drafts",
    "suffix drafts",
    "int8",
    "packed Q4_1",
    "batch-invariant",
)
CHURNS = {
    "churn, 32 rows": {"num_rows": 32},
    "churn, 64 rows, 64 places": {"num_rows": 64, "num_places": 64},
    "churn, 64 rows, 32 places": {"num_rows": 64},
    "churn, 64 rows, 256 in host memory": {"num_rows": 64, "max_cpu_loras": 256},
}
NUM_DEVICES = {"tensor-parallel 3": 3}


def _in_module(module: str, function: str, *args: object, **options: object) -> Callable[[Sizes], list[Law]]:
    """Imported where it runs: each row has a process, and JAX its own."""
    return lambda sizes: partial(getattr(importlib.import_module(f"scripts.proofs.lora.{module}"), function), *args)(
        sizes, **options
    )


ROWS: dict[str, Callable[[Sizes], list[Law]]] = {
    "one batch": _in_module("equal_ways", "one_batch"),
    **{way: _in_module("equal_ways", "one_way", way) for way in WAYS},
    "trained": _in_module("trained_adapter", "trained"),
    "files of PEFT": _in_module("trained_adapter", "files_of_peft"),
    **{row: _in_module("adapter_churn", "churn", **options) for row, options in CHURNS.items()},
    "unloaded, unreadable, cached": _in_module("adapter_laws", "adapter_laws"),
    "off": _in_module("adapter_cost", "off"),
    "step times": _in_module("adapter_cost", "step_times"),
}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove lora")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows to compute, without a page")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    for size in fields(Sizes):
        flag = f"--{size.name.replace('_', '-')}"
        parser.add_argument(flag, type=int, default=size.default, metavar="N", help="(default: %(default)s)")
    args = parser.parse_args(argv)
    sizes = Sizes(**{size.name: getattr(args, size.name) for size in fields(Sizes)})
    if args.row:
        name, _, given = args.row.partition(": ")
        print(json.dumps(ROWS[name](Sizes(**json.loads(given)))))
        return ""
    if args.only:
        for row in args.only:
            laws: list[Law] = in_process("lora", _key(row, sizes), NUM_DEVICES.get(row, 1))
            print(*lines_of(row, laws), *[f"failed: {law}" for law in broken(laws)], sep="\n", flush=True)
        raise SystemExit(0)
    lines, bad = list[str](), list[str]()
    for row in ROWS:
        laws = stored_row("lora", _key(row, sizes), NUM_DEVICES.get(row, 1))
        print(*lines_of(row, laws), sep="\n", file=sys.stderr)
        lines += ["", *lines_of(row, laws)]
        bad += [f"{row}: {law}" for law in broken(laws)]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def _key(row: str, sizes: Sizes) -> str:
    """Of a row and of how much it computes."""
    return f"{row}: {json.dumps(asdict(sizes))}"
