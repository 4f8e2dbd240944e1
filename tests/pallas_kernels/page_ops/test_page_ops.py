"""Page operations equal plain indexing in numpy, in every layer, in place; reads come before writes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.page_ops import api
from pallas_kernels.page_ops.mosaic_tpu import row_moves
from tests.pallas_kernels.page_ops.random_pools import DEFAULT_EMITTERS, bits, moves, random_bits

LAYERS, PAGES, HEADS, PAGE, LANES, COUNT = 2, 7, 2, 8, 128, 5
POOL = np.random.default_rng(0).standard_normal((LAYERS, PAGES, HEADS, PAGE, LANES), np.float32)
BACKENDS = ("mosaic_tpu", "xla", "reference")
SMALL_DTYPES = {"bfloat16": 16, "int8": 32, "float8_e4m3fn": 64, "float8_e5m2": 96}  # and a page size for each


@pytest.fixture(scope="module", params=BACKENDS)
def ops(request) -> dict:
    names = ("copy_pages", "move_rows", "gather_pages", "scatter_pages")
    return {name: jax.jit(partial(getattr(api, name), backend=request.param)) for name in names}


def as_slots(pool: np.ndarray) -> np.ndarray:
    """[layer, slot, head, lane]"""
    return np.moveaxis(pool, 3, 2).reshape(LAYERS, PAGES * PAGE, HEADS, LANES)


@settings(deadline=None, max_examples=50)
@given(pairs=moves(PAGES, 1, COUNT))
def test_pages_are_copied(ops, pairs):
    src, dst = pairs
    expected = POOL.copy()
    expected[:, dst] = POOL[:, src]
    got = np.asarray(ops["copy_pages"](POOL, src, dst))
    np.testing.assert_array_equal(got[:, 1:], expected[:, 1:])


@settings(deadline=None, max_examples=50)
@given(pairs=moves(PAGES * PAGE, PAGE, COUNT))
def test_rows_are_moved(ops, pairs):
    src, dst = pairs
    expected = as_slots(POOL).copy()
    expected[:, dst] = as_slots(POOL)[:, src]
    got = as_slots(np.asarray(ops["move_rows"](POOL, src, dst)))
    np.testing.assert_array_equal(got[:, PAGE:], expected[:, PAGE:])


@settings(deadline=None, max_examples=20)
@given(ids=st.permutations(range(1, PAGES)))
def test_pages_that_leave_come_back_wherever_they_are_put(ops, ids):
    ids = np.array(ids[:COUNT], np.int32)
    pages = ops["gather_pages"](POOL, ids)
    np.testing.assert_array_equal(pages, POOL[:, ids])
    emptied = np.where(np.isin(np.arange(PAGES), ids)[None, :, None, None, None], np.float32(np.nan), POOL)
    np.testing.assert_array_equal(ops["scatter_pages"](emptied, ids, pages), POOL)
    elsewhere = np.asarray(ops["scatter_pages"](POOL, ids[::-1], pages))
    np.testing.assert_array_equal(elsewhere[:, ids[::-1]], POOL[:, ids])


@pytest.mark.thinned(4)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", SMALL_DTYPES)
def test_every_bit_of_every_dtype_is_kept(backend, dtype):
    """NaN payloads included: page operations do not interpret what they copy."""
    rng = np.random.default_rng(1)
    page, num_heads = SMALL_DTYPES[dtype], 3
    pool = random_bits(rng, (LAYERS, PAGES, num_heads, page, LANES), dtype)
    ids = np.array([3, 1, 6], np.int32)
    src = rng.choice(PAGES * page, 40).astype(np.int32)
    dst = np.concatenate([page + rng.permutation((PAGES - 1) * page)[:38], [0, 0]]).astype(np.int32)
    jitted = {
        name: jax.jit(partial(getattr(api, name), backend=backend), compiler_options=DEFAULT_EMITTERS)
        for name in ("move_rows", "copy_pages")
    }
    moved = np.asarray(jitted["move_rows"](pool, src, dst))
    expected = np.moveaxis(np.asarray(pool), 3, 2).reshape(LAYERS, PAGES * page, num_heads, LANES).copy()
    expected[:, dst] = expected[:, src]
    expected = np.moveaxis(expected.reshape(LAYERS, PAGES, page, num_heads, LANES), 2, 3)
    np.testing.assert_array_equal(bits(moved)[:, 1:], bits(expected)[:, 1:])
    copied = np.asarray(jitted["copy_pages"](pool, ids, ids[::-1]))
    np.testing.assert_array_equal(bits(copied)[:, ids[::-1]], bits(pool)[:, ids])


@pytest.mark.parametrize(("num_planes", "block"), [(1, (1, 1)), (3, (1, 2)), (5, (2, 2))])
def test_rows_are_moved_block_by_block(monkeypatch, num_planes, block):
    """A block of layers and heads holds at most this many rows of one slot."""
    monkeypatch.setattr(row_moves, "MAX_TILE_BYTES", num_planes * 32 * LANES)
    assert row_moves.block_shape(LAYERS, HEADS, 6, LANES) == block
    src, dst = (np.array(slots, np.int32) for slots in ([9, 17, 40, 41, 10, 0], [17, 9, 10, 12, 41, 0]))
    expected = as_slots(POOL).copy()
    expected[:, dst] = as_slots(POOL)[:, src]
    got = as_slots(np.asarray(jax.jit(partial(api.move_rows, backend="mosaic_tpu"))(POOL, src, dst)))
    np.testing.assert_array_equal(got[:, PAGE:], expected[:, PAGE:])


def test_more_rows_than_wait_in_vmem_are_left_to_others():
    slots = jax.ShapeDtypeStruct((20_000,), jnp.int32)
    with pytest.raises(NotImplementedError, match="20000 rows of 128 lanes need more than 8388608 bytes of VMEM"):
        jax.eval_shape(partial(api.move_rows, backend="mosaic_tpu"), POOL, slots, slots)


@pytest.mark.parametrize("name", ["copy_pages", "move_rows", "scatter_pages"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_donated_pool_is_updated_in_place(name, dtype):
    pool = jax.ShapeDtypeStruct((30, 256, 3, 16, 128), dtype)
    ids = jax.ShapeDtypeStruct((8,), jnp.int32)
    pages = jax.ShapeDtypeStruct((30, 8, 3, 16, 128), dtype)
    operands = (ids, pages) if name == "scatter_pages" else (ids, ids)
    memory = jax.jit(getattr(api, name), donate_argnums=0).lower(pool, *operands).compile().memory_analysis()
    assert memory.alias_size_in_bytes == pool.size * pool.dtype.itemsize
    assert memory.temp_size_in_bytes <= 2 * pages.size * pages.dtype.itemsize + 4096, "only what is moved is held twice"
