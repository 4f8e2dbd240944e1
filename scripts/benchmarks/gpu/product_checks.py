"""Checks of products with few rows against the reference in float64 on the CPU, with the bounds of the tests."""

from collections.abc import Iterator
from functools import partial

import jax

from pallas_kernels.matmul.workload_arguments import build
from pallas_kernels.matmul.workloads import Workload
from scripts.benchmarks.gpu.benchmark_sizes import BACKEND, Sizes
from scripts.benchmarks.gpu.task_list import Record, Task, reason_of
from tests.pallas_kernels.matmul.matmul_checks import bound_of, errors, multiply, truth


def tasks(sizes: Sizes) -> Iterator[Task]:
    for w in sizes.product_checks:
        yield Task(w.name, "checks", partial(check, w))


def check(w: Workload) -> Record:
    """The error and the fault, if any, in the form of `reference_checks.check`."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        arguments = build(w)
        expected = truth(arguments)
    record: Record = {"workload": w.name, "pool": "none", "error": None, "bound": bound_of(w), "fault": None}
    try:
        found = multiply(arguments, backend=BACKEND)
    except NotImplementedError:
        raise
    except Exception as error:
        return record | {"fault": reason_of(error)}
    record["error"] = float(errors(found, expected).max())
    if not record["error"] <= record["bound"]:
        record["fault"] = "error above the bound"
    return record
