"""Contradictory arguments raise errors that name them, and a back end that refuses a call gives its reason."""

import inspect
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.page_layouts import ROWS
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.block_rules import xla_block_sizes
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.workload_arguments import build, draft_trees
from pallas_kernels.paged_attention.workloads import BENCH_WORKLOADS, WORKLOADS, Workload
from tests.pallas_kernels.paged_attention.attention_calls import changed

TINY = Workload("tiny", (1, 3), (5, 7), num_heads=4, num_kv_heads=2, head_dim=8, page_size=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"write": False}, "write=False needs k and v to be None"),
        ({"k": None}, "write=True needs k and v to be arrays"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"softcap": 0.0}, "softcap=0.0 must be positive"),
        ({"q": jnp.zeros((4, 3, 8))}, "q has 3 heads"),
        ({"q": jnp.zeros((4, 4, 80))}, "head dim 80 needs 256"),
        ({"v": jnp.zeros((4, 1, 8))}, "v has shape"),
        ({"q": jnp.zeros((5, 4, 8)), "k": None, "v": None, "write": False}, "meta is for 4 tokens, q has 5"),
        ({"backend": "cuda"}, "'cuda' is unknown; use one of auto, mosaic_tpu, mosaic_gpu, xla, invariant, reference"),
        ({"k_scale": jnp.ones((2, 2))}, "k_scale scales the numbers of an 8-bit pool; this pool holds float32"),
        ({"block": BlockSizes(positions=2)}, "positions=2 must be a multiple of the page size 4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_contradiction_is_an_error_that_names_it(change, message):
    as_users_call_it = inspect.unwrap(paged_attention)  # the suite's shape checks would be first
    with pytest.raises(ValueError, match=message):
        as_users_call_it(**changed(build(TINY), **change))


def test_a_back_end_that_steps_aside_says_why():
    with pytest.raises(NotImplementedError, match="reference: it has no blocks"):
        paged_attention(**changed(build(TINY), backend="reference", block=BlockSizes()))


@pytest.mark.parametrize("name", ["positions", "rows", "queries"])
@pytest.mark.parametrize("size", [0, 3, -8])
def test_block_sizes_are_powers_of_two(name, size):
    with pytest.raises(ValueError, match=f"{name}={size}"):
        BlockSizes(**{name: size})


def test_default_blocks_hold_whole_pages_and_stay_small():
    for page_size in (1, 16, 64, 256):
        for num_kv_heads, head_dim in ((3, 64), (1, 256), (32, 128)):
            sizes = xla_block_sizes(page_size, num_kv_heads, head_dim)
            assert sizes.pages(page_size) * page_size == sizes.positions
            if sizes.rows > 2:
                assert sizes.rows * sizes.positions * num_kv_heads * 2 * head_dim * 4 <= 2**22


def test_lanes_are_keys_and_values_in_whole_registers():
    assert [ROWS.packed_len(h, None) for h in (64, 80, 96, 128, 256)] == [128, 256, 256, 256, 512]


def test_workloads_have_names_of_their_own():
    names = [workload.name for workload in (*WORKLOADS, *BENCH_WORKLOADS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_lens": (5, 2)}, "tiny: each row has between 1 and kv_len new tokens"),
        ({"q_lens": (3, 1), "num_chunk_rows": 1}, "tiny: rows with one token come first"),
    ],
)
def test_a_workload_that_is_no_batch_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)


def test_the_workloads_hold_the_shapes_that_models_have():
    shapes = {(w.head_dim, w.num_kv_heads) for w in WORKLOADS}
    assert {head_dim for head_dim, _ in shapes} == {64, 80, 96, 128, 256}
    assert {1, 2, 3, 8, 32} <= {num_kv_heads for _, num_kv_heads in shapes}
    assert {w.page_size for w in WORKLOADS} == {16, 32, 64, 128}
    assert {w.stored_dtype for w in WORKLOADS} == {"float32", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"}


@pytest.mark.parametrize("pool_dtype", ["float32", "int8", "float8_e4m3fn"])
def test_a_workload_poisons_all_that_no_row_holds(pool_dtype):
    workload = replace(TINY, page_size=32, kv_lens=(40, 70), window=20, pool_dtype=pool_dtype)
    arguments = build(workload)
    pool = np.asarray(arguments["pool"]).astype(np.float32)
    # A decode row at position 39 and a chunk at 67 to 69 see 20 positions each; what is new is not stored yet.
    held = {0: range(20, 39), 1: range(48, 67)}
    is_held = np.zeros(pool.shape[1:4:2], bool)
    for row, positions in held.items():
        for position in positions:
            column = position // 32 - int(arguments["meta"].first_pages[row])
            is_held[int(arguments["meta"].tables[row, column]), position % 32] = True
    own, rest = pool.swapaxes(2, 3)[:, is_held], pool.swapaxes(2, 3)[:, ~is_held]
    assert np.isfinite(own).all()
    assert not own[..., 16:].any()
    if pool_dtype == "int8":
        assert {-128, 127} <= set(rest.ravel())
    else:
        assert np.isnan(rest).all()


def test_trees_hold_their_ancestors_and_long_rows_are_chains():
    workload = Workload("trees", (1, 64, 65), (9, 64, 70), num_heads=1, num_kv_heads=1, head_dim=8, tree_words=2)
    words = draft_trees(workload, np.random.default_rng(0)).astype(np.uint32).astype(object)
    assert (words[0] == 2**32 - 1).all()
    assert (words[65:] == 2**32 - 1).all()
    seen = [int(low) | int(high) << 32 for low, high in words[1:65]]
    for node, own in enumerate(seen):
        assert own >> node == 1, "itself, and no later node"
        ancestors = [j for j in range(node) if own >> j & 1]
        assert all(seen[j] & own == seen[j] for j in ancestors)
        assert node == 0 or 0 in ancestors
    assert any(bin(own).count("1") < node + 1 for node, own in enumerate(seen)), "not all are chains"
