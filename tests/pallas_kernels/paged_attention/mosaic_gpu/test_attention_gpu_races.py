"""Threads and copies of the GPU kernels never race, by the race detector of Pallas' GPU interpreter, which finds
planted races.

It knows of copies between shared and main memory, of loads and stores of warpgroups, of barriers, waits for copies and
fences, and compares what thread blocks do to main memory as if they ran at once. It does not know what wgmma reads.
Pools of 8 bits are read by loads alone, so all of the ring is seen with them; of 16-bit ones only what is zeroed at the
edges of a row. Nowhere seen are products of queries that have not arrived (`queries_filled`), of a block that another
warpgroup has not finished zeroing (`cleared`), and of weights. Copies happen as early as they may, in no other order.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_gpu import kernel
from pallas_kernels.paged_attention.mosaic_gpu.memory_warpgroup import store_token
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import attend
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, errors
from tests.pallas_kernels.paged_attention.mosaic_gpu.tiny_gpu import tiny_gpu
from tests.pallas_kernels.race_findings import ON_GPU, is_caught, missing_waits, race_findings

SHAPE: dict[str, Any] = {"num_kv_heads": 1, "head_dim": 64, "page_size": 16, "dtype": "bfloat16", "pool_dtype": "int8"}
# Eight blocks in three parts, of which the first two have one block more than the ring.
DECODE = Workload("decode", (1, 1), (500, 20), num_heads=2, **SHAPE)
# Two warpgroups share each tile of the prompt; one-token rows are divided.
MIXED = Workload("mixed", (1, 16), (300, 200), num_heads=16, **SHAPE)
BLOCK = BlockSizes(positions=64, rows=1, queries=8)

Run = Callable[[Workload], np.ndarray]


@pytest.fixture
def races() -> Iterator[list[Any]]:
    """What was found in each kernel that has begun."""
    params = plgpu.InterpretGPUParams(detect_races=True)
    with tiny_gpu(), interpreted_by(params), race_findings(ON_GPU) as findings:
        yield findings
    gpu_callbacks.reset_gpu_interpret_mode_state()


def run(workload: Workload) -> np.ndarray:
    arguments = build(workload)
    spec = replace(arguments.pop("spec"), backend="mosaic_gpu", block=BLOCK)
    o, _ = jax.jit(partial(paged_attention, spec=spec))(**arguments)
    return np.asarray(o, np.float32)


@pytest.mark.parametrize("workload", [DECODE, MIXED], ids=lambda workload: workload.name)
def test_nothing_meets(races, workload):
    o = run(workload)
    num_kernels = {"decode": 2, "mixed": 4}[workload.name]  # items and parts; the prompt's tokens, its items
    assert [found.races_found for found in races] == [False] * num_kernels
    expected = attend(build(workload), backend="reference", compile_fast=True).o
    assert errors(o, expected).max() < 2 * BOUNDS[workload.dtype]


@pytest.mark.parametrize("name", ["filled", "freed", "token_filled"])
def test_a_missing_wait_is_caught(races, name):
    """For a block of the ring, for its place to be free, for the new token that is on its way to its page."""
    with missing_waits(kernel, name):
        assert is_caught(races, partial(run, DECODE))


def test_a_missing_fence_is_caught(races, monkeypatch):
    """Outputs are stored by threads and leave by a copy."""
    monkeypatch.setattr(plgpu, "commit_smem", lambda: None)
    assert is_caught(races, partial(run, DECODE))


def test_thread_blocks_that_store_the_same_token_are_caught(races, monkeypatch):
    """Only the item with a row's last block may; here all of the row's do."""
    stream = kernel.stream_blocks

    def store_and_stream(*of_item: Any) -> None:
        store_token(*of_item)
        stream(*of_item)

    monkeypatch.setattr(kernel, "stream_blocks", store_and_stream)
    assert is_caught(races, partial(run, DECODE))
