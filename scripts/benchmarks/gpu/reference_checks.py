"""Checks of named workloads against the reference in float64, with the bounds of the tests."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import jax

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.task_list import Record, Task, reason_of
from tests.pallas_kernels.paged_attention.attention_calls import Result, attend, truth
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors


def tasks(sizes: Sizes) -> Iterator[Task]:
    """One task per workload. The CPU computes the references while the GPU's programs compile."""
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        references = [(w, pool.submit(expected, w)) for w in sizes.checks]
        for w, reference in references:
            yield Task(w.name, "checks", partial(check, w, reference))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def expected(w: Workload) -> Result:
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return truth(build(w))


def check(w: Workload, reference: "Future[Result]") -> Record:
    """The error and the fault, if any. Raises NotImplementedError if the back end refuses the workload."""

    def compare() -> tuple[float, bool]:
        found, wanted = attend(build(w), backend=BACKEND), reference.result()
        return errors(found.o, wanted.o).max(), are_same_pools(found.pool, wanted.pool)

    return record_of(w.name, w.stored_dtype, BOUNDS[w.dtype], compare)


def record_of(name: str, pool: str, bound: float, compare: Callable[[], tuple[float, bool]]) -> Record:
    """pool: its dtype. compare: returns the error, and whether the pools are the same."""
    record: Record = {"workload": name, "pool": pool, "error": None, "bound": bound, "fault": None}
    try:
        error, has_same_pool = compare()
    except NotImplementedError:
        raise
    except Exception as problem:
        return record | {"fault": reason_of(problem)}
    record["error"] = float(error)
    if not record["error"] <= bound:
        record["fault"] = "error above the bound"
    elif not has_same_pool:
        record["fault"] = "the pools differ"
    return record
