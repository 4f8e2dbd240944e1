"""Threads and copies of the GPU kernels of `lora_matmul` never race, by the race detector of Pallas' GPU interpreter,
which finds planted races."""

from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import jax
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.mosaic_gpu import expand_thread_block, shrink_thread_block
from pallas_kernels.lora_matmul.workload_arguments import make_arguments
from pallas_kernels.lora_matmul.workloads import TINY, TINY_PAGE, LoraWorkload
from tests.pallas_kernels.race_findings import is_caught, missing_waits
from tests.pallas_kernels.wgmma_races import races_of_products

# Three rank blocks, of which two are in shared memory.
WORKLOAD = LoraWorkload("o", TINY, TINY_PAGE, (20,), 3, dtype="bfloat16")


@pytest.fixture
def races() -> Iterator[list[Any]]:
    """What was found in each kernel that has begun: in `shrink`, in `expand`."""
    with patch.object(expand_thread_block, "MAX_DEPTH", 2), races_of_products() as findings:
        yield findings


def run() -> None:
    args = make_arguments(WORKLOAD)
    call = jax.jit(
        partial(api.lora_matmul, site=args.site, backend="mosaic_gpu"),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    jax.block_until_ready(call(args.x, args.pool, args.layer, args.group, args.batch))


def test_nothing_meets(races):
    run()
    assert [found.races_found for found in races] == [False, False]


@pytest.mark.parametrize(("number", "kernel"), [(0, shrink_thread_block), (1, expand_thread_block)])
def test_a_missing_wait_is_caught(races, number: int, kernel: ModuleType):
    with missing_waits(kernel, "filled"):
        assert is_caught(races, run, number)


def test_a_missing_fence_is_caught(races, monkeypatch):
    """Outputs are stored by threads and leave by a copy; rank blocks are read by threads before others are copied."""
    monkeypatch.setattr(expand_thread_block.plgpu, "commit_smem", lambda: None)
    assert is_caught(races, run, 1)
