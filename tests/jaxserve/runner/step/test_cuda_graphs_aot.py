"""On a GPU the host waits for nothing in a step, so it queues a step while the one before runs.

`scripts/prove aot` also compiles steps of prompts and steps with drafts.
"""

import jax.numpy as jnp
import pytest
from jax import lax

from jaxserve.core.buckets import Bucket
from jaxserve.runner.programs.compiler_options import compiler_options
from tests.support.compiled.aot import compile_on, gpu_mesh, on
from tests.support.compiled.aot_step import StepCase
from tests.support.compiled.cuda_graphs import (
    CONDITION,
    LOOP,
    assert_no_waits,
    listed_operations,
    slices_in_branches,
    waits,
)


def mix(x):
    """Some operations; XLA makes no graph of fewer than five."""
    for _ in range(3):
        x = jnp.cumsum(jnp.sort(x))
    return x


def halve(x):
    return lax.while_loop(lambda x: x.sum() > 1, lambda x: jnp.sort(x) / 2, mix(x))


def choose(x):
    return lax.cond(x[0] > 2, halve, jnp.cos, mix(x))


def rows_by_slices(x):
    """A loop that slices, in a condition."""
    return lax.cond(x[0, 0] > 2, lambda x: lax.map(lambda row: jnp.cumsum(jnp.sort(row)), x), jnp.cos, x)


def operations_of(function, *shape, **options):
    with listed_operations() as (dump, operations):
        mesh = gpu_mesh()
        compile_on(mesh, function, on(mesh, shape, jnp.float32), compiler_options=dump | options)
    return operations


def test_conditions_and_loops_of_a_step_are_parts_of_graphs():
    with assert_no_waits() as options:
        StepCase(gpu_mesh(), "smollm2-135m", Bucket(16, 16, 16)).compile(**options)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("function", [halve, choose])
def test_by_default_the_host_would_wait(function):
    """Control of the test above."""
    kept = operations_of(function, 512, **compiler_options(gpu_mesh()))
    assert not waits(kept)
    assert {op.kind for op in kept} & {LOOP, CONDITION}
    assert waits(operations_of(function, 512))


def test_slices_in_a_condition_are_found():
    found = operations_of(rows_by_slices, 8, 4096, **compiler_options(gpu_mesh()))
    assert slices_in_branches(found)
