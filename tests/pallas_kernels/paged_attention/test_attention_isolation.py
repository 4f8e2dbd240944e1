"""What lies in the pool beside a row's own positions reaches no output: one request's NaN stays its own."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention.arg_specs import Workload, build
from pallas_kernels.paged_attention.config import BlockSizes
from tests.pallas_kernels.paged_attention.attention_calls import attend

SHAPE = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_size": 4}
DECODE = Workload("decode", (1, 1, 1), (30, 9, 21), **SHAPE, padding_tokens=1, padding_rows=1)
MIXED = Workload("mixed", (1, 1, 7, 9), (30, 9, 21, 9), **SHAPE, padding_tokens=2)
WINDOWED = Workload("windowed", (1, 1, 7, 9), (30, 9, 21, 9), **SHAPE, window=6, has_sinks=True, softcap=3.0)
TREE = Workload("tree", (1, 1, 7, 9), (30, 9, 21, 9), **SHAPE, is_tree=True)
BLOCK = BlockSizes(positions=8, rows=2, queries=4)


def run(arguments: dict, backend: str) -> np.ndarray:
    block = BLOCK if backend == "xla" else None
    return attend(arguments, backend=backend, block=block, compile_fast=True).o


def first_token_of(arguments: dict, row: int) -> int:
    return int(arguments["meta"].cu_q_lens[row])


@pytest.mark.parametrize("backend", ["xla", "reference"])
@pytest.mark.parametrize("workload", [DECODE, MIXED, WINDOWED, TREE], ids=lambda workload: workload.name)
def test_outputs_do_not_depend_on_what_no_row_holds(workload, backend):
    arguments = build(workload)
    with_nan = run(arguments, backend)
    assert np.isfinite(with_nan).all()
    for filler in (0.0, 3e38, np.inf):
        pool = np.asarray(arguments["pool"])
        pool = jnp.asarray(np.where(np.isnan(pool), np.float32(filler), pool))
        np.testing.assert_array_equal(run(arguments | {"pool": pool}, backend), with_nan)


@pytest.mark.parametrize("backend", ["xla", "reference"])
@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize(("workload", "failed_row"), [(DECODE, 1), (MIXED, 1), (MIXED, 2)])
def test_a_row_whose_inputs_are_nan_harms_itself_only(workload, failed_row, part, backend):
    arguments = build(workload)
    healthy = run(arguments, backend)
    token = first_token_of(arguments, failed_row)
    broken = run(arguments | {part: arguments[part].at[token].set(jnp.nan)}, backend)
    own = slice(token, first_token_of(arguments, failed_row + 1))
    assert np.isnan(broken[own]).any(), "the control: a NaN at a position that a row does hold is seen"
    np.testing.assert_array_equal(np.delete(broken, own, axis=0), np.delete(healthy, own, axis=0))


@pytest.mark.parametrize("backend", ["xla", "reference"])
def test_the_control_one_position_too_many_is_seen(backend):
    arguments = build(replace(DECODE, write=False, kv_lens=(29, 9, 21)))
    meta = arguments["meta"]
    one_more = replace(meta, kv_lens=meta.kv_lens + 1, kv_positions=meta.kv_positions + 1)
    assert np.isfinite(run(arguments, backend)).all()
    assert np.isnan(run(arguments | {"meta": one_more}, backend)[0]).all()
