"""Attention of one layer at the sizes of a real model, with this project's kernels and with others."""

from collections.abc import Iterator
from functools import partial

from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.other_kernels import KERNELS, OWN
from scripts.benchmarks.gpu.task_list import Record, Task
from scripts.benchmarks.kernels.attention_cost import cost
from scripts.benchmarks.kernels.measure_kernel import ceilings


def ceiling_tasks(sizes: Sizes, is_small: bool) -> Iterator[Task]:
    """Rates of a plain copy and a plain product on this GPU; other figures are shares of them."""
    yield Task("copy and product", "ceilings", lambda: ceilings(is_small, sizes.sampling))


def tasks(sizes: Sizes, *, is_own: bool) -> Iterator[Task]:
    """Each of this project's back ends at each workload, its kernels first, or each other implementation."""
    for by in KERNELS:
        if (by in OWN) == is_own:
            yield from (task(w, by, sizes) for w in sizes.attention)


def task(w: Workload, by: str, sizes: Sizes) -> Task:
    return Task(f"{w.name} by {by}", "attention", partial(measure, w, by, sizes))


def measure(w: Workload, by: str, sizes: Sizes) -> Record:
    """Times one implementation. Bytes: keys and values that a call must read; ops: those that causality requires."""
    needed = cost(w)
    return {
        "workload": w.name,
        "by": by,
        "is_ours": by == BACKEND,
        "is_decode": w.is_decode,
        "call_s": KERNELS[by](w, sizes.sampling),
        "kv_bytes": needed.kv_bytes,
        "ops": needed.ops,
    }
