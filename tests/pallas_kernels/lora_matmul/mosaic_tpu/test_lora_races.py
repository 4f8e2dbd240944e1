"""The kernels' copies never race: the race detector of Pallas' TPU interpreter finds none, and finds planted races.

Results alone would not reveal a missing wait: a copy that happens early has always arrived before the read.
"""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.mosaic_tpu import adapter_stream
from pallas_kernels.lora_matmul.workload_arguments import make_arguments
from pallas_kernels.lora_matmul.workloads import TINY, TINY_PAGE, LoraWorkload
from tests.pallas_kernels.race_findings import race_findings

# More groups of rank blocks than there are buffers, in two tiles of tokens.
WORKLOAD = LoraWorkload("o", TINY, TINY_PAGE, (72, 8), 136, dtype="bfloat16")

Run = Callable[..., tuple[bool, float]]


@pytest.fixture
def races_of() -> Iterator[Run]:
    """(whether two copies met, error); copies happen as late as they may, or "eager": as early."""

    def run(mode: str) -> tuple[bool, float]:
        args = make_arguments(WORKLOAD)
        params = pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)
        with interpreted_by(params), race_findings() as findings:
            call = jax.jit(partial(api.lora_matmul, site=args.site, backend="mosaic_tpu"))
            found = jax.block_until_ready(call(args.x, args.pool, args.layer, args.group, args.batch))
        error = max(np.abs(a - b).max() for a, b in zip(found, args.expected(), strict=True))
        return any(finding.races_found for finding in findings), error

    yield run
    pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.parametrize("mode", ["on_wait", "eager"])
def test_no_two_copies_meet(races_of, mode):
    found, error = races_of(mode)
    assert not found
    assert error < 1e-5


def test_rank_blocks_that_are_not_waited_for_are_caught(races_of, monkeypatch):
    """Copies happen early here, so the numbers are right all the same."""
    monkeypatch.setattr(adapter_stream, "_wait", lambda copy: None)
    found, error = races_of("eager")
    assert found
    assert error < 1e-5
