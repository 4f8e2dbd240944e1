"""Every constrained text is in its form, in every way of running it, at the speed of a text without one.

390 JSON schemas (`scripts/proofs/grammars/schema_set.py`): made ones in the style of tool parameters, configuration
files and answers of APIs, resources of Kubernetes, types of OpenAI's package. Texts that end are checked by the package
`jsonschema`; those that `max_tokens` ends are no JSON yet, and are counted apart. Rows are stored in .cache/proofs: an
interrupted run continues as long as the sources that affect them are unchanged.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.proofs.helpers.laws import Law, broken, lines_of
from scripts.proofs.helpers.stored_rows import in_process, stored_row

MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
SAMPLERS = ("greedy", "temperature 1")
LEAST_COVERAGE, LEAST_ENDED = 300, 0.3
BENCH_COVERAGE = 7765 / 10163  # llguidance's own, of JSONSchemaBench


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove grammars")
    parser.add_argument("--bench", type=Path, metavar="FOLDER", help="a copy of MaskBench's schemas, to count coverage")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows to compute, without a page")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(_compute(args.row)))
        return ""
    if args.only:
        for row in args.only:
            found = in_process("grammars", row)
            lines = [*lines_of(row, found), *(f"failed: {law}" for law in broken(found))] if row in LAWS else found
            print(*lines, sep="\n", flush=True)
        raise SystemExit(0)
    lines, bad = _validity()
    for row, (title, _) in LAWS.items():
        laws: list[Law] = stored_row("grammars", row)
        print(*lines_of(title, laws), sep="\n", file=sys.stderr)
        lines += ["", *lines_of(title, laws)]
        bad += broken(laws)
    if args.bench:
        from scripts.proofs.grammars.coverage import bench_coverage

        laws = bench_coverage(args.bench)
        lines += ["", *lines_of("coverage of MaskBench's schemas", laws)]
        bad += broken(laws)
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def _validity() -> tuple[list[str], list[str]]:
    lines, bad = list[str](), list[str]()
    for model in MODELS:
        for sampler in SAMPLERS:
            name = f"validity, {model}, {sampler}"
            for row in stored_row("grammars", name):
                faults, _, _ = row.pop("faults", []), row.pop("texts", None), row.pop("names", None)
                if not lines:
                    lines += [f"| model | sampler | {' | '.join(row)} |", "|---" * (2 + len(row)) + "|"]
                lines.append(f"| {model} | {sampler} | {' | '.join(map(str, row.values()))} |")
                print(lines[-1], *faults, sep="\n", file=sys.stderr)
                is_low = row["source"] == "all" and (
                    row["schemas"] - row["refused"] < LEAST_COVERAGE
                    or row["valid"] < LEAST_ENDED * (row["schemas"] - row["refused"])
                )
                if row["invalid"] or row["failed"] or is_low:
                    bad.append(f"{name}, {row['source']}")
    return lines, bad


def _in_module(module: str, function: str, *args: str) -> Callable[[], list[Law]]:
    """Imported where it runs: each row has a process, and JAX its own."""
    return lambda: getattr(importlib.import_module(f"scripts.proofs.grammars.{module}"), function)(*args)


def _mask_times(model: str) -> list[Law]:
    """Along the texts of the row about validity."""
    from scripts.proofs.grammars.mask_laws import mask_times

    whole = stored_row("grammars", f"validity, {model}, {SAMPLERS[1]}")[-1]
    return mask_times(model, whole["names"], whole["texts"])


LAWS: dict[str, tuple[str, Callable[[], list[Law]]]] = {
    **{f"masks, {m}": (f"masks, {m}", _in_module("mask_laws", "brute_force", m)) for m in MODELS},
    **{f"times, {m}": (f"time of a mask, {m}", partial(_mask_times, m)) for m in MODELS},
    **{f"random, {m}": (f"random draws, {m}", _in_module("random_draws", "random_draws", m)) for m in MODELS},
    "law": ("the law of sampled tokens", _in_module("sampling_law", "sampling_laws")),
    "equal": ("ways of running", _in_module("equal_texts", "equal_texts")),
    "any text": ("a form that any text has", _in_module("any_text", "any_text")),
    "jump-forward": ("forced tokens", _in_module("jump_forward", "jump_forward")),
    "killed": ("a grammar process that is killed", _in_module("killed_process", "killed_process")),
    "client": ("OpenAI's client", _in_module("openai_client", "openai_client")),
    **{f"host, {m}": (f"host time, tokenizer of {m}", _in_module("host_time", "host_time", m)) for m in MODELS},
    "speed": ("speed of SmolLM2", _in_module("speed", "speeds")),
}


def _compute(row: str) -> list:
    if row in LAWS:
        return LAWS[row][1]()
    from scripts.proofs.grammars.validity import validity

    _, model, sampler = row.split(", ")
    return validity(model, sampler)
