"""Numbers in the pool outside a row's own positions reach no output: one request's NaN affects no other."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS, attend
from tests.pallas_kernels.paged_attention.feature_cases import small_blocks

SHAPE: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_size": 8}
DECODE = Workload("decode", (1, 1, 1), (30, 9, 21), **SHAPE, padding_tokens=1, padding_rows=1)
MIXED = Workload("mixed", (1, 1, 7, 9), (30, 9, 21, 9), **SHAPE, padding_tokens=2)
WINDOWED_TREE = replace(MIXED, name="windowed_tree", window=6, has_sinks=True, softcap=3.0, tree_words=1)
INT8 = replace(MIXED, name="int8", page_size=32, kv_lens=(60, 9, 41, 9), pool_dtype="int8")
LANES = {"page_size": 128, "layout": "lanes"}
DECODE_LANES = replace(DECODE, name="decode_lanes", **LANES, kv_lens=(130, 9, 121), dtype="bfloat16")
MIXED_LANES = replace(MIXED, name="mixed_lanes", **LANES, kv_lens=(130, 9, 121, 9), window=20)
FILLERS = {"float32": (0.0, 3e38, np.inf), "bfloat16": (0.0, 3e38, np.inf), "int8": (0, 127, -128)}

by_backend = pytest.mark.parametrize("backend", [*BACKENDS, "reference"])


def run(arguments: dict, workload: Workload, backend: str) -> np.ndarray:
    block = None if backend == "reference" else small_blocks(workload)
    return attend(arguments, backend=backend, block=block, compile_fast=True).o


def first_token_of(arguments: dict, row: int) -> int:
    return int(arguments["meta"].cu_q_lens[row])


@pytest.mark.thinned(8)
@by_backend
@pytest.mark.parametrize(
    "workload", [DECODE, MIXED, WINDOWED_TREE, INT8, DECODE_LANES, MIXED_LANES], ids=lambda workload: workload.name
)
def test_outputs_do_not_depend_on_what_no_row_holds(workload, backend):
    arguments = build(workload)
    poisoned = run(arguments, workload, backend)
    assert np.isfinite(poisoned).all()
    is_unused = np.isnan(build(replace(workload, pool_dtype="float32"))["pool"])
    pool = np.asarray(arguments["pool"])
    for filler in FILLERS[workload.stored_dtype]:
        filled = jnp.asarray(np.where(is_unused, np.asarray(filler).astype(pool.dtype), pool))
        np.testing.assert_array_equal(run(arguments | {"pool": filled}, workload, backend), poisoned)


@pytest.mark.thinned(8)
@by_backend
@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize(("workload", "failed_row"), [(DECODE, 1), (MIXED, 1), (MIXED, 2), (MIXED_LANES, 2)])
def test_a_row_whose_inputs_are_nan_harms_itself_only(workload, failed_row, part, backend):
    arguments = build(workload)
    healthy = run(arguments, workload, backend)
    token = first_token_of(arguments, failed_row)
    broken = run(arguments | {part: arguments[part].at[token].set(jnp.nan)}, workload, backend)
    own = slice(token, first_token_of(arguments, failed_row + 1))
    assert np.isnan(broken[own]).any(), "the control: a NaN at a position that a row does hold is seen"
    np.testing.assert_array_equal(np.delete(broken, own, axis=0), np.delete(healthy, own, axis=0))


@by_backend
def test_the_control_one_position_too_many_is_seen(backend):
    workload = replace(DECODE, write=False, kv_lens=(29, 9, 21))
    arguments = build(workload)
    meta = arguments["meta"]
    one_more = replace(meta, kv_lens=meta.kv_lens + 1, kv_positions=meta.kv_positions + 1)
    assert np.isfinite(run(arguments, workload, backend)).all()
    assert np.isnan(run(arguments | {"meta": one_more}, workload, backend)[0]).all()
