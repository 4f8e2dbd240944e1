"""Checks of products with few rows against the reference in float64 on the CPU, with the bounds of the tests."""

from collections.abc import Iterator
from functools import partial

import jax

from pallas_kernels.matmul.workload_arguments import build
from pallas_kernels.matmul.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.reference_checks import record_of
from scripts.benchmarks.gpu.task_list import Record, Task
from tests.pallas_kernels.matmul.matmul_checks import bound_of, errors, multiply, truth


def tasks(sizes: Sizes) -> Iterator[Task]:
    for w in sizes.product_checks:
        yield Task(w.name, "checks", partial(check, w))


def check(w: Workload) -> Record:
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        arguments = build(w)
        expected = truth(arguments)

    def compare() -> tuple[float, bool]:
        return errors(multiply(arguments, backend=BACKEND), expected).max(), True

    return record_of(w.name, "none", bound_of(w), compare)
