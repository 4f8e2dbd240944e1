"""The kernels' copies never race: the race detector of Pallas' TPU interpreter finds none, and finds planted races.

Results alone would not reveal a missing wait: a copy that happens early has always arrived before the read.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_tpu import page_stream
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import attend
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, errors
from tests.pallas_kernels.race_findings import race_findings

SHAPE: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_size": 16}
# More blocks than there is room for, rows of one block after rows of many, tiles that share a seam.
DECODE = Workload("decode", (1,) * 5, (140, 17, 64, 5, 33), **SHAPE, dtype="bfloat16")
MIXED = Workload("mixed", (1, 1, 20, 9), (40, 17, 130, 30), **SHAPE, dtype="bfloat16")
WINDOWED_TREES = Workload("windowed_trees", (1, 5, 20, 9), (140, 17, 64, 30), **SHAPE, window=20, tree_words=1)
LANES_SHAPE = SHAPE | {"page_size": 128, "layout": "lanes", "dtype": "bfloat16"}
LANES = Workload("lanes", (1, 1, 1, 1, 20, 9), (260, 17, 500, 3, 130, 30), **LANES_SHAPE)
BLOCK = BlockSizes(positions=32, rows=2, queries=8)

Run = Callable[..., tuple[bool, np.ndarray]]


@pytest.fixture
def races_of() -> Iterator[Run]:
    """(whether two copies met, attention) of a workload; copies happen as late as they may, or "eager": as early."""

    def run(workload: Workload, mode: str = "on_wait") -> tuple[bool, np.ndarray]:
        arguments, block = build(workload), replace(BLOCK, positions=max(BLOCK.positions, workload.page_size))
        spec = replace(arguments.pop("spec"), backend="mosaic_tpu", block=block)
        params = pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)
        with interpreted_by(params), race_findings() as findings:
            call = jax.jit(partial(paged_attention, spec=spec))
            o, _ = jax.block_until_ready(call(**arguments))
        return any(finding.races_found for finding in findings), np.asarray(o, np.float32)

    yield run
    pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("workload", [DECODE, MIXED, WINDOWED_TREES, LANES], ids=lambda workload: workload.name)
def test_no_two_copies_meet(races_of, workload, mode):
    found, o = races_of(workload, mode)
    assert not found
    expected = attend(build(workload), backend="reference", compile_fast=True).o
    assert errors(o, expected).max() < 2 * BOUNDS[workload.dtype]


@pytest.mark.parametrize("workload", [DECODE, MIXED], ids=lambda workload: workload.name)
def test_pages_that_nobody_waits_for_are_caught(races_of, workload, monkeypatch):
    """Copies happen early here, so the numbers are right all the same."""
    monkeypatch.setattr(page_stream.PageStream, "wait", lambda stream, span, block: stream.cursor[3] % stream.depth)
    assert races_of(workload, "eager")[0]
