"""TPU kernels and the XLA path lie within their bound of a float64 reference, in all combinations of features.

The cases are the product of features, each combination with randomly drawn shapes, and the named workloads; the bounds
are those of the tests (`error_bounds.py`). The error is the largest deviation of a head's output, as a share of that
output's largest element. Stored pools must be equal number for number. Where the device is absent, the kernel is
interpreted.

`scripts/prove kernels_gpu` runs the same cases with the GPU kernels, and lists those that they leave to XLA. Because
there are many of these, GPU kernels have a second product, of the features that they serve, and the named workloads in
bfloat16. The simulated GPU is so small that even short contexts are divided.

Finished cases are stored in .cache/proofs by back end; an interrupted run continues after them if neither the back
end's kernels nor the cases have changed.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import BENCH_WORKLOADS, WORKLOADS, Workload
from scripts.prove import digest_of
from tests.pallas_kernels.paged_attention import attention_calls
from tests.pallas_kernels.paged_attention.attention_calls import Result, attend, truth
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors
from tests.pallas_kernels.paged_attention.feature_cases import (
    AXES,
    BATCHES,
    GPU_AXES,
    Case,
    name_of,
    product_of_features,
    small_blocks,
    workload_of,
)
from tests.pallas_kernels.paged_attention.mosaic_gpu.tiny_gpu import BLOCK, tiny_gpu

GPU = "mosaic_gpu"
BACKENDS = (*attention_calls.BACKENDS, GPU)
USED = {"invariant": ("xla",)}
"""By back end, the other back ends whose files it imports."""

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".cache" / "proofs"
CASES_PER_PROCESS = 40  # a process keeps every program that it compiled

Row = dict[str, Any]
Item = tuple[str, Case | Workload, tuple[str, ...]]
"""A name, its case or workload, and the back ends that run it."""


def main(argv: list[str]) -> str:
    return prove("kernels", attention_calls.BACKENDS, argv)


def prove(name: str, served: tuple[str, ...], argv: list[str]) -> str:
    """Runs the proof of this name for the back ends `served`, and returns its table."""
    parser = argparse.ArgumentParser(prog=f"scripts/prove {name}")
    parser.add_argument("--backend", choices=served, action="append", help="a back end to prove (default: all)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="run only cases and workloads whose names contain TEXT"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run one in N combinations, drawn at random")
    if GPU not in served:  # interpreted GPU kernels would take days
        parser.add_argument(
            "--full-size", action="store_true", help="also run the benchmarks' workloads: 10 GB per process"
        )
    parser.set_defaults(full_size=False)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default: 2)")
    args = parser.parse_args(argv)
    backends = tuple(args.backend or served)
    items = [item for item in items_of(backends, args.every, args.full_size) if args.only in item[0]]
    if not items:
        parser.error(f"no combination and no workload has {args.only!r} in its name")
    rows = run(items, args.jobs)
    return report(rows, backends)


def items_of(backends: tuple[str, ...], every: int, is_full_size: bool) -> list[Item]:
    """The items for all back ends, and those for GPU kernels only.

    Full-sized workloads are not run with GPU kernels, which would take days interpreted; scripts/device_day runs them.
    """
    of_gpu, others = (tuple(b for b in backends if (b == GPU) == is_gpu) for is_gpu in (True, False))
    items: list[Item] = [(w.name, w, backends) for w in WORKLOADS]
    items += [(w.name, w, others) for w in BENCH_WORKLOADS if is_full_size]
    items += [
        (f"{w.name}, in bfloat16", replace(w, dtype="bfloat16"), of_gpu)
        for w in WORKLOADS
        if w.dtype == "float32" and w.layout == "rows"
    ]
    known: set[str] = set()
    for axes, asked in ((AXES, backends), (GPU_AXES, of_gpu)):
        cases = list(product_of_features(axes))
        cases = Random(0).sample(cases, len(cases) // every) if every > 1 else cases
        items += [(name_of(case), case, asked) for case in cases if name_of(case) not in known]
        known |= set(map(name_of, cases))
    return [item for item in items if item[2]]


def run(items: list[Item], num_jobs: int) -> list[Row]:
    """A row for each case and back end; cases that an earlier run finished are not run again."""
    kept = {backend: kept_file(backend) for backend in BACKENDS}
    KEPT.mkdir(parents=True, exist_ok=True)
    lines = [line for file in kept.values() if file.exists() for line in file.read_text().splitlines()]
    done = {(row["name"], row["backend"]): row for row in map(json.loads, lines)}
    wanted = [(name, backend) for name, _, backends in items for backend in backends]
    spawn = multiprocessing.get_context("spawn")
    with (
        tqdm(total=len(wanted), initial=sum(key in done for key in wanted), unit="case") as bar,
        spawn.Pool(num_jobs, maxtasksperchild=CASES_PER_PROCESS) as processes,
    ):
        missing = [
            (name, case, tuple(backend for backend in backends if (name, backend) not in done))
            for name, case, backends in items
        ]
        for rows in processes.imap_unordered(_rows_of, [task for task in missing if task[2]]):
            for row in rows:
                done[row["name"], row["backend"]] = row
                with kept[row["backend"]].open("a") as log:
                    log.write(json.dumps(row) + "\n")
                bar.update()
                if row["fault"]:
                    bar.write(f"{row['name']}, {row['backend']}: {row['fault']}", file=sys.stderr)
    return [done[key] for key in wanted]


def _rows_of(task: Item) -> list[Row]:
    return rows_of(*task)


def kept_file(backend: str) -> Path:
    """The file of the back end's finished cases."""
    return KEPT / f"kernels-{backend}-{state_of_sources(backend)}.jsonl"


def state_of_sources(backend: str) -> str:
    """A hash of the files that a back end's errors depend on."""
    return digest_of(sources_of(backend))


def sources_of(backend: str) -> list[Path]:
    """Kernels and the cases' helpers, without tests, other ops, and files or folders named after an unused back end."""
    folders = ("pallas_kernels", "tests/pallas_kernels/paged_attention")
    used = (backend, *USED.get(backend, ()))
    skipped = ("test_", "matmul", *(other for other in BACKENDS if other not in used))
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return [file for file in files if not any(part.startswith(skipped) for part in file.relative_to(ROOT).parts)]


def rows_of(name: str, case: Case | Workload, backends: tuple[str, ...]) -> list[Row]:
    """Runs one case, in all batches of its bucket, with each back end."""
    if isinstance(case, Workload):
        workloads, features, is_small = [case], {}, case not in BENCH_WORKLOADS
    else:
        workloads, is_small = [workload_of(case, batch) for batch in BATCHES[case["bucket"]]], True
        features = {axis: str(case[axis]) for axis in AXES if axis != "dtype"}
    types = {"dtype": workloads[0].dtype, "pool_dtype": workloads[0].stored_dtype}
    rows: list[Row] = [
        {"name": name, "backend": backend, "error": None, "fault": None, "unserved": None, "seconds": 0.0}
        | types
        | {"is_named": isinstance(case, Workload), "features": features}
        for backend in backends
    ]
    for workload in workloads:
        arguments = build(workload)
        expected: Result | None = None  # computed only if a back end serves the case
        for row in rows:
            started_s = time.monotonic()
            try:
                got = result_of(row["backend"], workload, arguments, is_case=bool(features), is_small=is_small)
                expected = expected or truth(arguments, compile_fast=is_small)
                error = float(errors(got.o, expected.o).max())
                row["error"] = max(error, row["error"] or 0.0)
                if error > BOUNDS[workload.dtype]:
                    row["fault"] = f"{workload.name}: error {error:.1e} above {BOUNDS[workload.dtype]:.1e}"
                elif not are_same_pools(got.pool, expected.pool):
                    row["fault"] = f"{workload.name}: another pool"
            except NotImplementedError as problem:
                kind = "unserved" if row["backend"] == GPU and not is_for_gpus(workload) else "fault"
                row[kind] = str(problem).rpartition(f"{row['backend']}: ")[2]
            except Exception as problem:  # one case's failure is a row of the report
                row["fault"] = f"{workload.name}: {traceback.format_exception_only(problem)[-1].strip()}"
            row["seconds"] += round(time.monotonic() - started_s, 2)
    return rows


def result_of(backend: str, workload: Workload, arguments: dict[str, Any], *, is_case: bool, is_small: bool) -> Result:
    """The output of a back end. Cases run with small blocks, so that short rows have several."""
    options: dict[str, Any] = {"backend": backend, "compile_fast": is_small}
    if backend != GPU:
        return attend(arguments, block=small_blocks(workload) if is_case else None, **options)
    with tiny_gpu():
        return attend(arguments, block=BLOCK if is_case else None, **options)


def is_for_gpus(w: Workload) -> bool:
    """Whether GPU kernels must serve the workload; they may leave all others to XLA."""
    return w.dtype != "float32" and w.layout == "rows" and (w.is_8bit or w.stored_dtype == w.dtype)


def report(rows: list[Row], backends: tuple[str, ...]) -> str:
    named = [row for row in rows if row["is_named"]]
    combined = [row for row in rows if not row["is_named"]]
    found = {(row["backend"], row["dtype"]) for row in combined if row["error"] is not None}
    columns = [(backend, dtype) for backend in backends for dtype in BOUNDS if (backend, dtype) in found]
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
        *("", "Sources: " + ", ".join(f"{backend} {state_of_sources(backend)}" for backend in backends) + "."),
    ]
    unserved = Counter((row["backend"], row["unserved"]) for row in rows if row["unserved"])
    if unserved:
        text += ["", "Left to other back ends, with the reason:", ""]
        text += markdown(["by", "results", "reason"], [[by, f"{n:,}", why] for (by, why), n in unserved.items()])
    faults = [f"{row['name']}, {row['backend']}: {row['fault']}" for row in rows if row["fault"]]
    if faults:
        raise SystemExit("\n".join([*text, "", f"{len(faults)} of {len(rows)} failed:", *faults[:20]]))
    num_results = len(rows) - unserved.total()
    return "\n".join([*text, "", f"All {num_results:,} results are within their bounds, and all pools equal."])


def largest(rows: Iterable[Row]) -> str:
    found = [row["error"] for row in rows if row["error"] is not None]
    return f"{max(found):.1e}" if found else "not served" if any(row["unserved"] for row in rows) else "–"


def markdown(titles: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]
