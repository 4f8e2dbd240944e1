import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.argmax_top_k import BLOCK, argmax, row_max, top_k

WIDTHS = [1, 63, 64, 65, 1000, 12345, 49152]


def rows(width, seed=0, is_coarse=False):
    x = np.random.default_rng(seed).normal(size=(5, width)).astype(np.float32)
    return np.round(x * 4) / 4 if is_coarse else x


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_coarse", [False, True], ids=["distinct", "many equal"])
def test_argmax_is_the_first_of_the_largest(width, is_coarse):
    x = rows(width, is_coarse=is_coarse)
    x[1] = -np.inf
    np.testing.assert_array_equal(jax.jit(argmax)(x), np.argmax(x, axis=1))
    np.testing.assert_array_equal(jax.jit(row_max)(x), np.max(x, axis=1))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("k", [1, 20, 65])
@pytest.mark.parametrize("is_coarse", [False, True], ids=["distinct", "many equal"])
def test_the_k_largest_are_exact_and_their_indices_hold_them(width, k, is_coarse):
    x, k = rows(width, is_coarse=is_coarse), min(k, width)
    values, ids = jax.jit(top_k, static_argnums=1)(x, k)
    np.testing.assert_array_equal(values, -np.sort(-x, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(ids), axis=1), values)
    assert all(len(set(row)) == k for row in np.asarray(ids).tolist())


def test_the_k_largest_may_lie_in_one_block_or_in_k():
    together, apart = np.zeros((2, 1, 65 * BLOCK * 4), np.float32)
    together[0, 7 * BLOCK : 8 * BLOCK] = np.arange(1, BLOCK + 1)
    apart[0, :: BLOCK * 4] = np.arange(1, 66)
    for x, k in ((together, BLOCK), (apart, 65)):
        _, ids = jax.jit(top_k, static_argnums=1)(x, k)
        np.testing.assert_array_equal(ids, np.argsort(-x, axis=1, kind="stable")[:, :k])


def test_indices_stay_in_range_when_everything_is_minus_infinity():
    values, ids = jax.jit(top_k, static_argnums=1)(jnp.full((2, 12345), -jnp.inf), 65)
    assert (values == -jnp.inf).all()
    assert ((ids >= 0) & (ids < 12345)).all()
