"""Tiles of one shape: a row's result does not depend on the number of rows, nor on its index."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.rms_norm import rms_norm
from jaxserve.models.row_tiles import RowTiles, each_tile

pytestmark = pytest.mark.default_compiler

WIDTH = 1000  # sums of 200 have the same bits in every batch on some processors
RANDOM = np.random.default_rng(0)
TILES = RowTiles(16)
WEIGHTS = jnp.asarray(RANDOM.standard_normal((WIDTH, 72), np.float32) / np.float32(np.sqrt(WIDTH)))
ROWS = RANDOM.standard_normal((70, WIDTH), np.float32)


def work(x, y):
    """The kinds of operations of a layer: a norm, a product, an elementwise function, a sum."""
    z = rms_norm(x, jnp.ones(WIDTH), 1e-6) @ WEIGHTS
    return {"row": jnp.tanh(z) + y[:, None], "sum": jnp.exp(z).sum(1)}


@partial(jax.jit, static_argnums=0)
def run(tiles, num_used, rows):
    is_used = jnp.arange(len(rows)) < num_used
    return each_tile(tiles, is_used, work, rows, rows[:, 0])


def bits(found, row):
    return np.concatenate([np.asarray(found["row"][row]), np.asarray(found["sum"][row])[None]]).tobytes()


def of_row(tiles) -> set[bytes]:
    """Row 0 of ROWS in batches of other sizes and at other indices."""
    found = set()
    for num_rows in (1, 2, 17, 40):
        for place in {0, num_rows // 2, num_rows - 1}:
            rows = jnp.asarray(np.insert(ROWS[1:num_rows], place, ROWS[0], axis=0))
            found.add(bits(run(tiles, num_rows, rows), place))
    return found


def test_a_row_has_the_same_bits_in_every_batch_and_place():
    """Control: without tiles the bits differ."""
    assert len(of_row(TILES)) == 1
    assert len(of_row(None)) > 1


def test_tiles_give_what_the_function_gives_and_only_used_ones_are_computed():
    rows = jnp.asarray(ROWS)
    whole, tiled = run(None, 70, rows), run(TILES, 70, rows)
    for name in whole:
        assert tiled[name].shape == whole[name].shape
        np.testing.assert_allclose(tiled[name], whole[name], rtol=1e-3, atol=1e-3)
    part = run(TILES, 17, rows)
    np.testing.assert_array_equal(part["row"][:32], tiled["row"][:32])
    np.testing.assert_array_equal(part["row"][32:], 0)
