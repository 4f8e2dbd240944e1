"""Checks of named workloads against the reference in float64, with the bounds of the tests."""

import os
from collections.abc import Iterator
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
    record: Record = {
        "workload": w.name,
        "pool": w.stored_dtype,
        "error": None,
        "bound": BOUNDS[w.dtype],
        "fault": None,
    }
    try:
        found, wanted = attend(build(w), backend=BACKEND), reference.result()
    except NotImplementedError:
        raise
    except Exception as error:
        return record | {"fault": reason_of(error)}
    record["error"] = float(errors(found.o, wanted.o).max())
    if not record["error"] <= record["bound"]:
        record["fault"] = "error above the bound"
    elif not are_same_pools(found.pool, wanted.pool):
        record["fault"] = "the pools differ"
    return record
