"""The race detector of Pallas' GPU interpreter for kernels with wgmma, of whose reads the interpreter tells it nothing.

Copies happen as early as they may, in no other order, and a product is complete at once: a missing `wgmma_wait` is not
seen.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.dispatch import interpreted_by
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.race_findings import ON_GPU, race_findings


@contextmanager
def races_of_products() -> Iterator[list[Any]]:
    """What is found in each kernel that begins in the block."""
    params = plgpu.InterpretGPUParams(detect_races=True)
    detector, written = getattr(*ON_GPU), defaultdict[Any, threading.Event](threading.Event)
    with (
        host_callbacks(),
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
