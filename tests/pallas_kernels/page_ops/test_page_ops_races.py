"""The kernels' copies never race: the race detector of Pallas' TPU interpreter finds none, and finds planted races.

Results alone would not reveal a missing wait: a copy that happens early has always arrived before the read.
What the detector does not see is two copies in flight that meet each other, since it lets one core's copies happen in
turn: `test_aligned_pieces` proves that no two pieces are one place.
"""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.page_layouts import LANES
from pallas_kernels.page_ops import api
from pallas_kernels.page_ops.mosaic_tpu import copy_pipeline, piece_writes
from tests.pallas_kernels.race_findings import race_findings

RNG = np.random.default_rng(0)
POOL = jnp.asarray(RNG.standard_normal((2, 6, 2, 32, 128)), jnp.bfloat16)
K, V = (jnp.asarray(RNG.standard_normal((48, 2, 40)), jnp.float32) for _ in range(2))
# A row that fills a piece between two partial ones, single tokens, and more pieces than buffers.
SLOTS = [*range(40, 81), 100, 128, 161, 17, *range(3)]


def int32(*numbers: int) -> jax.Array:
    return jnp.array(numbers, jnp.int32)


CALLS = {
    "write": (jnp.int32(1), K, V, int32(*SLOTS), 1, 45),
    "move_rows": (int32(40, 41, 33, 70, 150, 99, 7, 0, 0), int32(33, 34, 40, 71, 64, 150, 180, 0, 0)),
    "copy_pages": (int32(1, 2, 3, 0, 0), int32(2, 1, 5, 0, 0)),
    "gather_pages": (int32(1, 5, 2),),
    "scatter_pages": (int32(3, 1, 0), POOL[:, :3]),
}


# Pages of 128 in lanes, heads of 40 in 48 rows. Six pieces are more than the buffers that the test leaves.
POOL_OF_LANES = jnp.asarray(RNG.standard_normal((2, 6, 2, 96, 128)), jnp.bfloat16)
LANE_SLOTS = [*range(230, 271), 400, 520, 640, 17, *range(3)]
LANE_CALLS = {
    "write": (jnp.int32(1), K, V, int32(*LANE_SLOTS), 1, 45),
    "move_rows": (int32(140, 141, 300, 270, 650, 399, 7, 0, 0), int32(300, 301, 140, 271, 264, 650, 767, 0, 0)),
}


@pytest.fixture
def races_of() -> Iterator[Callable[..., tuple[bool, jax.Array]]]:
    """(whether two copies met, result) of a call; its copies happen as late as they may, or "eager": as early."""

    def run(name: str, *operands, mode: str = "on_wait", pool: jax.Array = POOL, **options) -> tuple[bool, jax.Array]:
        params = pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)
        with interpreted_by(params), race_findings() as findings:
            result = jax.block_until_ready(getattr(api, name)(pool, *operands, **options, backend="mosaic_tpu"))
        return any(finding.races_found for finding in findings), result

    yield run
    pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("name", CALLS)
def test_no_two_copies_meet(races_of, name, mode):
    found, got = races_of(name, *CALLS[name], mode=mode)
    assert not found
    expected = jax.jit(partial(getattr(api, name), backend="reference"))(POOL, *CALLS[name])
    first = 0 if name in ("write", "gather_pages") else 1
    np.testing.assert_array_equal(got[:, first:], expected[:, first:])


@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("name", LANE_CALLS)
def test_no_two_copies_meet_in_lanes(races_of, name, mode, monkeypatch):
    monkeypatch.setattr(piece_writes, "MAX_DEPTH", 3)
    found, got = races_of(name, *LANE_CALLS[name], mode=mode, pool=POOL_OF_LANES, layout=LANES)
    assert not found
    expected = getattr(api, name)(POOL_OF_LANES, *LANE_CALLS[name], layout=LANES, backend="reference")
    np.testing.assert_array_equal(got[:, 1:], expected[:, 1:])


@pytest.mark.parametrize(("name", "lost"), [("write", 2), ("write", 1), ("move_rows", 1)])
def test_a_missing_wait_is_caught(races_of, name, lost, monkeypatch):
    """Nobody waits for the new and old rows of `write` (two copies), for what it stores, or for any row of `move_rows`.

    Copies happen early here, so the numbers are right all the same.
    """
    wait = copy_pipeline.wait
    monkeypatch.setattr(copy_pipeline, "wait", lambda copies: None if len(copies) == lost else wait(copies))
    assert races_of(name, *CALLS[name], mode="eager")[0]
    assert races_of(name, *LANE_CALLS[name], mode="eager", pool=POOL_OF_LANES, layout=LANES)[0]
