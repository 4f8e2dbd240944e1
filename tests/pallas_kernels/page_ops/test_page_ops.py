"""Page operations equal plain indexing in numpy, in every layer, in place; reads come before writes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.page_ops import api

LAYERS, PAGES, HEADS, PAGE, LANES, COUNT = 2, 7, 2, 4, 8, 5
POOL = np.random.default_rng(0).standard_normal((LAYERS, PAGES, HEADS, PAGE, LANES), np.float32)
BACKENDS = ("xla", "reference")


def moves(size: int, first: int) -> st.SearchStrategy:
    """Pairs padded to COUNT with destinations before `first` (scratch); sources may be destinations of other pairs."""
    pairs = st.lists(
        st.tuples(st.integers(0, size - 1), st.integers(first, size - 1)), max_size=COUNT, unique_by=lambda p: p[1]
    )
    return pairs.map(lambda pairs: np.array(pairs + [(0, 0)] * (COUNT - len(pairs)), np.int32).T)


@pytest.fixture(scope="module", params=BACKENDS)
def ops(request) -> dict:
    names = ("copy_pages", "move_rows", "gather_pages", "scatter_pages")
    return {name: jax.jit(partial(getattr(api, name), backend=request.param)) for name in names}


def as_slots(pool: np.ndarray) -> np.ndarray:
    """[layer, slot, head, lane]"""
    return np.moveaxis(pool, 3, 2).reshape(LAYERS, PAGES * PAGE, HEADS, LANES)


@settings(deadline=None, max_examples=50)
@given(pairs=moves(PAGES, 1))
def test_pages_are_copied(ops, pairs):
    src, dst = pairs
    expected = POOL.copy()
    expected[:, dst] = POOL[:, src]
    got = np.asarray(ops["copy_pages"](POOL, src, dst))
    np.testing.assert_array_equal(got[:, 1:], expected[:, 1:])


@settings(deadline=None, max_examples=50)
@given(pairs=moves(PAGES * PAGE, PAGE))
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
