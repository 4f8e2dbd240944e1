"""Findings of the race detectors of Pallas' interpreters, one for each kernel of a call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any
from unittest.mock import patch

import jax
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.pallas import mosaic_gpu as plgpu

# Where the detectors leave their findings.
ON_TPU = (interpret_pallas_call, "RaceDetectionState")
ON_GPU = (gpu_callbacks, "GPURaceDetectionState")


@contextmanager
def race_findings(detector: tuple[Any, str] = ON_TPU) -> Iterator[list[Any]]:
    """A list that grows by a finding (`.races_found`) with every kernel that begins."""
    findings, make = [], getattr(*detector)

    def begin(**options: Any) -> Any:
        findings.append(make(**options))
        return findings[-1]

    with patch.object(*detector, begin):
        yield findings


def is_caught(races: list[Any], run: Callable[[], object], number: int = 0) -> bool:
    """Whether a planted race of the `number`-th kernel of a run is found, in one of five runs: on a loaded machine
    threads of the GPU interpreter may come so late that another barrier has ordered them. races: of `race_findings`."""
    for _ in range(5):
        first = len(races)
        with suppress(jax.errors.JaxRuntimeError):  # of barriers whose phases were not waited for
            run()
        if races[first + number].races_found:
            return True
        gpu_callbacks.reset_gpu_interpret_mode_state()
    return False


@contextmanager
def missing_waits(kernel: ModuleType, name: str) -> Iterator[None]:
    """Plants a race: thread blocks of a GPU kernel (its `_thread_block`) never wait for the barrier of this name."""
    skipped, begin, wait = [], kernel._thread_block, plgpu.barrier_wait

    def thread_block(refs: dict[str, Any], *static: Any) -> None:
        skipped.append(refs[name])
        begin(refs, *static)

    def wait_for_others(barrier: Any) -> None:
        if not skipped or getattr(barrier, "ref", barrier) is not skipped[-1]:
            wait(barrier)

    with patch.object(kernel, "_thread_block", thread_block), patch.object(plgpu, "barrier_wait", wait_for_others):
        yield
