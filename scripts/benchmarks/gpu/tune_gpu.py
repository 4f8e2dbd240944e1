"""Tunes tile sizes of the GPU kernels: times the candidates and stores the fastest in the package's data."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pallas_kernels import tuned_blocks
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.block_sweep import SIZES, candidates, kind_of, try_block
from scripts.benchmarks.kernels.tune_kernels import OP, entry, fastest, write


def tasks(sizes: Sizes, folder: Path, device_kind: str) -> Iterator[Task]:
    """One task per workload. Its result is written at once, for the later parts."""
    file = folder / tuned_blocks.slug(device_kind) / f"{OP}.json"
    for w in sizes.tuned:
        yield Task(w.name, "tune", partial(tune, w, sizes, file, device_kind))


def tune(w: Workload, sizes: Sizes, file: Path, device_kind: str) -> Record:
    tried = [try_block(w, block, BACKEND, sizes.sampling) for block in candidates(w, "gpu")]
    best = fastest(tried)
    if not best:
        raise NotImplementedError("; ".join(sorted({str(one["problem"]) for one in tried})))
    write(file, device_kind, [entry(w, best[0], "gpu")])
    kind = kind_of(w)
    assert kind
    swept = SIZES["gpu"][kind]
    rows = [
        {
            "block": {name: size for name, size in asdict(one["block"]).items() if name in swept},
            "time_us": one["time_us"],
            "problem": one["problem"],
            "is_fastest": one is best[0],
        }
        for one in tried
    ]
    return {"workload": w.name, "kind": kind, "tried": rows}
