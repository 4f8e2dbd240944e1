"""Every attention back end lies within its bound of a float64 reference, in all combinations of features.

The product of features, each combination with shapes drawn at random, and the named workloads; the bounds are those of
the tests (tests/pallas_kernels/paged_attention/bounds.py). The error is the largest deviation of a head's output as a
share of that output's largest element. Stored pools must be equal number for number. On a machine without the device a
kernel is interpreted. Finished cases are kept in .cache/proofs, so that an interrupted run goes on while the kernels
and the cases stay the same.
"""

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

from pallas_kernels.paged_attention.arg_specs import BENCH_WORKLOADS, WORKLOADS, Workload, build
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS, attend, truth
from tests.pallas_kernels.paged_attention.bounds import BOUNDS, are_same_pools, errors
from tests.pallas_kernels.paged_attention.cases import (
    AXES,
    BATCHES,
    Case,
    name_of,
    product_of_features,
    small_blocks,
    workload_of,
)

ROOT = Path(__file__).parents[2]
CASES_PER_PROCESS = 40  # a process keeps every program that it compiled

Row = dict[str, Any]
Item = tuple[str, Case | Workload]


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove kernels")
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="a back end (default: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases and workloads with TEXT in their names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one in N combinations, drawn at random")
    parser.add_argument("--full-size", action="store_true", help="the benchmarks' workloads too: 10 GB a process")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    args = parser.parse_args(argv)
    backends = tuple(args.backend or BACKENDS)
    cases = list(product_of_features())
    if args.every > 1:
        cases = Random(0).sample(cases, len(cases) // args.every)
    named = (*WORKLOADS, *(BENCH_WORKLOADS if args.full_size else ()))
    items = [*((w.name, w) for w in named), *((name_of(case), case) for case in cases)]
    items = [item for item in items if args.only in item[0]]
    if not items:
        parser.error(f"no combination and no workload has {args.only!r} in its name")
    rows = run(items, backends, args.jobs)
    return report(rows, backends)


def run(items: list[Item], backends: tuple[str, ...], num_jobs: int) -> list[Row]:
    """A row for each case and back end, from earlier runs where these finished it."""
    kept = ROOT / ".cache" / "proofs" / f"kernels-{state_of_sources()}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    finished = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["name"], row["backend"]): row for row in finished}
    wanted = [(name, backend) for name, _ in items for backend in backends]
    spawn = multiprocessing.get_context("spawn")
    with (
        kept.open("a") as log,
        tqdm(total=len(wanted), initial=sum(key in done for key in wanted), unit="case") as bar,
        spawn.Pool(num_jobs, maxtasksperchild=CASES_PER_PROCESS) as processes,
    ):
        missing = [(*item, [b for b in backends if (item[0], b) not in done]) for item in items]
        for rows in processes.imap_unordered(_rows_of, [task for task in missing if task[2]]):
            for row in rows:
                done[row["name"], row["backend"]] = row
                log.write(json.dumps(row) + "\n")
                log.flush()
                bar.update()
                if row["fault"]:
                    bar.write(f"{row['name']}, {row['backend']}: {row['fault']}", file=sys.stderr)
    return [done[key] for key in wanted]


def _rows_of(task: tuple[str, Case | Workload, list[str]]) -> list[Row]:
    return rows_of(*task)


def state_of_sources() -> str:
    """A hash of what errors depend on."""
    folders = ("pallas_kernels", "tests/pallas_kernels/paged_attention")
    digest = hashlib.sha256()
    for file in sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        if not file.name.startswith("test_"):
            digest.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def rows_of(name: str, case: Case | Workload, backends: list[str]) -> list[Row]:
    """One case, in all batches of its bucket, by each back end."""
    if isinstance(case, Workload):
        workloads, features, is_small = [case], {}, case not in BENCH_WORKLOADS
    else:
        workloads, is_small = [workload_of(case, batch) for batch in BATCHES[case["bucket"]]], True
        features = {axis: str(case[axis]) for axis in AXES if axis != "dtype"}
    types = {"dtype": workloads[0].dtype, "pool_dtype": workloads[0].stored_dtype}
    rows: list[Row] = [
        {"name": name, "backend": backend, "error": None, "fault": None, "seconds": 0.0}
        | types
        | {"is_named": isinstance(case, Workload), "features": features}
        for backend in backends
    ]
    for workload in workloads:
        arguments = build(workload)
        expected = truth(arguments, compile_fast=is_small)
        for row in rows:
            started_s = time.monotonic()
            try:
                block = small_blocks(workload) if features else None
                got = attend(arguments, backend=row["backend"], block=block, compile_fast=is_small)
                error = float(errors(got.o, expected.o).max())
                row["error"] = max(error, row["error"] or 0.0)
                if error > BOUNDS[workload.dtype]:
                    row["fault"] = f"{workload.name}: error {error:.1e} above {BOUNDS[workload.dtype]:.1e}"
                elif not are_same_pools(got.pool, expected.pool):
                    row["fault"] = f"{workload.name}: another pool"
            except Exception as problem:  # one case's failure is a row of the report
                row["fault"] = f"{workload.name}: {traceback.format_exception_only(problem)[-1].strip()}"
            row["seconds"] += round(time.monotonic() - started_s, 2)
    return rows


def report(rows: list[Row], backends: tuple[str, ...]) -> str:
    named = [row for row in rows if row["is_named"]]
    combined = [row for row in rows if not row["is_named"]]
    columns = [(backend, dtype) for backend in backends for dtype in BOUNDS]
    titles = [f"{backend}, {dtype}" for backend, dtype in columns]
    bounds = ["bound", *(f"{BOUNDS[dtype]:.1e}" for _, dtype in columns)]

    def line(label: str, chosen: list[Row]) -> list[str]:
        return [label, *(largest(r for r in chosen if (r["backend"], r["dtype"]) == column) for column in columns)]

    by_feature = [bounds, line("all", combined)]
    by_feature += [
        line(f"pool {pool}", [row for row in combined if row["pool_dtype"] == pool])
        for pool in sorted({row["pool_dtype"] for row in combined})
    ]
    for axis, values in AXES.items():
        if axis not in ("dtype", "pool"):
            by_feature += [
                line(f"{axis} {value}", [row for row in combined if row["features"][axis] == str(value)])
                for value in values
            ]
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in named:
        by_name[f"{row['name']} ({row['dtype']}, pool {row['pool_dtype']})"].append(row)
    workloads = [
        [name, *(largest(r for r in chosen if r["backend"] == backend) for backend in backends)]
        for name, chosen in by_name.items()
    ]
    num_cases = len({row["name"] for row in combined})
    text = [
        *(f"Largest errors of {num_cases:,} combinations of features, back end and queries' type by column.", ""),
        *markdown(["feature", *titles], by_feature),
        *("", f"Largest errors of {len(by_name)} named workloads.", ""),
        *markdown(["workload", *backends], workloads),
        *("", f"Sources {state_of_sources()}."),
    ]
    faults = [f"{row['name']}, {row['backend']}: {row['fault']}" for row in rows if row["fault"]]
    if faults:
        raise SystemExit("\n".join([*text, "", f"{len(faults)} of {len(rows)} failed:", *faults[:20]]))
    return "\n".join([*text, "", f"All {len(rows):,} results are within their bounds, and all pools equal."])


def largest(rows: Iterable[Row]) -> str:
    found = [row["error"] for row in rows if row["error"] is not None]
    return f"{max(found):.1e}" if found else "–"


def markdown(titles: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]
