"""A plan made once per step serves every layer and KV group, and large tables are processed some rows at a time."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.mosaic_tpu import backend as mosaic_tpu
from pallas_kernels.paged_attention.mosaic_tpu.chunk_kernel import plan_tiles
from pallas_kernels.paged_attention.workload_arguments import build, model_of
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import attend, changed
from tests.pallas_kernels.paged_attention.error_bounds import are_same_pools

MIXED = Workload(
    *("mixed", (1, 1, 11, 3, 6), (5, 64, 66, 3, 40)), num_heads=3, num_kv_heads=1, head_dim=64, padding_tokens=2
)
TREES = replace(MIXED, window=20, tree_words=1, has_sinks=True)
BLOCK = BlockSizes(positions=32, rows=2, queries=4)


def planned(workload: Workload, arguments: dict, backend: str) -> dict:
    arguments = changed(arguments, backend=backend, block=BLOCK)
    return arguments | {"meta": plan(arguments["meta"], arguments["spec"], model_of(workload))}


@pytest.mark.parametrize("backend", [pytest.param("mosaic_tpu", marks=pytest.mark.thorough), "xla"])
def test_a_plan_changes_nothing_and_serves_other_groups_and_layers(backend):
    workload = TREES
    arguments = build(workload)
    there = planned(workload, arguments, backend)
    assert there["meta"].plan is not None
    swap = np.append(0, 1 + np.random.default_rng(0).permutation(arguments["pool"].shape[1] - 1))  # 0: the scratch page
    meta = there["meta"]
    elsewhere = {  # another group: the same rows on other pages
        "pool": jnp.zeros_like(arguments["pool"]).at[:, swap].set(arguments["pool"]),
        "layer": 1 - arguments["layer"],
        "meta": replace(
            meta,
            tables=jnp.asarray(swap, jnp.int32)[meta.tables],
            write_slots=jnp.asarray(swap, jnp.int32)[meta.write_slots // workload.page_size] * workload.page_size
            + meta.write_slots % workload.page_size,
        ),
    }
    elsewhere["pool"] = elsewhere["pool"][::-1]
    expected = attend(arguments, backend=backend, block=BLOCK, compile_fast=True)
    got = attend(there, backend=backend, block=BLOCK, compile_fast=True)
    np.testing.assert_array_equal(got.o, expected.o)
    assert are_same_pools(got.pool, expected.pool)
    other = attend(there | elsewhere, backend=backend, block=BLOCK, compile_fast=True)
    np.testing.assert_array_equal(other.o, expected.o)


def test_back_ends_that_need_no_plan_make_none():
    arguments = build(MIXED)
    for backend in ("invariant", "reference"):
        assert planned(MIXED, arguments, backend)["meta"].plan is None
    decode = replace(MIXED, q_lens=(1, 1), kv_lens=(5, 64), padding_tokens=0)
    assert planned(decode, build(decode), "mosaic_tpu")["meta"].plan is None


@pytest.mark.thorough
def test_tables_beyond_the_scalar_memory_are_handled_some_rows_at_a_time(monkeypatch):
    workload = replace(MIXED, dtype="bfloat16")
    arguments = build(workload)
    spec = replace(arguments.pop("spec"), backend="mosaic_tpu", block=BLOCK)

    def run() -> np.ndarray:
        call = jax.jit(lambda given: paged_attention(**given, spec=spec)[0])
        return np.asarray(call(arguments).astype(jnp.float32))

    whole = run()
    monkeypatch.setattr(mosaic_tpu, "TABLE_BYTES", 2 * 4 * arguments["meta"].tables.shape[1])
    np.testing.assert_array_equal(run(), whole)


PLAN = jax.jit(plan_tiles, static_argnums=(1, 2, 3))
NUM_ROWS, NUM_TOKENS = 8, 240


@settings(max_examples=60)
@given(
    q_lens=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    shape=st.sampled_from([(1, 16, 8), (3, 32, 16), (4, 64, 16), (7, 16, 16)]),
)
def test_tiles_hold_every_line_of_the_longer_rows_once_and_in_order(q_lens, shape):
    group_size, num_lines, align = shape
    q_lens = sorted(q_lens, key=lambda n: n > 1)
    num_decodes = sum(n == 1 for n in q_lens)
    lens = np.array(q_lens + [0] * (NUM_ROWS - len(q_lens)), np.int32)
    meta = AttentionMeta(
        cu_q_lens=np.concatenate([[0], np.cumsum(lens)]).astype(np.int32),
        kv_lens=lens,
        **dict.fromkeys(("tables", "first_pages", "write_slots", "kv_positions")),
        rows=np.zeros(NUM_TOKENS, np.int32),
        num_seqs=np.int32(len(q_lens)),
        num_decodes=np.int32(num_decodes),
    )
    tiles = jax.tree.map(np.asarray, PLAN(meta, *shape))
    num_tiles = tiles.ends[-1]
    assert num_tiles <= len(tiles.rows), "the list is long enough"
    lines = []
    for row, start in zip(tiles.rows[:num_tiles], tiles.starts[:num_tiles], strict=True):
        assert start % align == 0
        first, end = meta.cu_q_lens[row : row + 2] * group_size
        own = range(max(start, first), min(start + num_lines, end))
        assert own, "no tile is empty"
        lines += own
    assert lines == list(range(num_decodes * group_size, sum(q_lens) * group_size))
