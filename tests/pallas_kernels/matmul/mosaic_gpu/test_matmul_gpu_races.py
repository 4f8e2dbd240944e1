"""Threads and copies of the GPU kernel of `matmul` never race, by the race detector of Pallas' GPU interpreter, which
finds planted races.

The interpreter does not tell the detector what wgmma reads; here it is told. Copies happen as early as they may, in no
other order, and a product is complete at once: a missing `wgmma_wait` is not seen. Thread blocks run one after the
other, so it cannot see that two store the same tile; then another tile would hold NaN, as all memory to which nothing
has been stored, in the tests of results.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import pytest
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.mosaic_gpu import kernel, kernel_sizes
from pallas_kernels.matmul.workloads import Workload, packed
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.matmul.matmul_checks import check
from tests.pallas_kernels.race_findings import ON_GPU, missing_waits, race_findings

PLAIN = Workload("plain", 3, 128, 192, has_bias=True, has_residual=True)
GATED = replace(PLAIN, name="gated", activation="silu", has_bias=False, has_residual=False)
ONE, TWO = (BlockSizes(64, 64, splits) for splits in (1, 2))


@pytest.fixture
def races() -> Iterator[list[Any]]:
    """What was found in each kernel that has begun. Two steps are in shared memory, of three."""
    params = plgpu.InterpretGPUParams(detect_races=True)
    detector, written = getattr(*ON_GPU), defaultdict[Any, threading.Event](threading.Event)
    with (
        host_callbacks(),
        patch.object(kernel_sizes, "MAX_DEPTH", 2),
        patch.object(detector, "check_write", announced(detector.check_write, written)),
        patch.object(gpu_callbacks, "wgmma", seen_by_the_detector(gpu_callbacks.wgmma, written)),
        interpreted_by(params),
        race_findings(ON_GPU) as findings,
    ):
        yield findings
    gpu_callbacks.reset_gpu_interpret_mode_state()


def announced(check_write: Callable[..., None], written: dict[Any, threading.Event]) -> Callable[..., None]:
    """A check of a write that sets the event of what is written to."""

    def check(detector: Any, thread: Any, clock: Any, key: Any, *rest: Any, **options: Any) -> None:
        check_write(detector, thread, clock, key, *rest, **options)
        written[key].set()

    return check


def seen_by_the_detector(wgmma: Callable[..., Any], written: dict[Any, threading.Event]) -> Callable[..., Any]:
    """A product whose reads of shared memory are compared with the copies to it, as those of tcgen05 are.

    It reads no sooner than anything has been copied there: a warpgroup that waits for nothing could end before any
    copy, which the interpreter refuses before there is a race to find.
    """

    def multiply(*, thread: Any, **arguments: Any) -> Any:
        memory = gpu_callbacks._get_shared_memory()
        races = gpu_callbacks.get_races()
        memory.clocks[thread].inc(memory.all_concurrent_threads[thread])
        clock = memory.get_clock(thread).async_smem_clock
        for operand in ("a", "b"):
            key = gpu_callbacks.HostAllocationKey.from_array(arguments[f"{operand}_allocation_key_as_array"])
            transforms = gpu_callbacks._remove_noop_transforms(arguments[f"{operand}_transforms"])
            read = memory.access(key, jax.tree.map(int, transforms))
            assert written[key].wait(timeout=60)
            races.check_read(thread, clock, key, read, source_info=arguments["source_info"])
        return wgmma(thread=thread, **arguments)

    return multiply


@pytest.mark.parametrize(
    ("workload", "block"),
    [(PLAIN, ONE), (GATED, TWO), (packed(PLAIN), ONE)],
    ids=["plain", "gated, splits", "codes, widened in shared memory"],
)
def test_nothing_meets(races, workload, block):
    check(workload, "mosaic_gpu", block)
    assert [found.races_found for found in races] == [False]


@pytest.mark.parametrize("name", ["filled", "freed"])
def test_a_missing_wait_is_caught(races, name):
    """For a step of the ring, and for its place to be free."""
    with missing_waits(kernel, name):
        check(PLAIN, "mosaic_gpu", ONE)
    assert races[0].races_found
