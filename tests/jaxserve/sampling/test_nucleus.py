"""Tokens drawn by rejection follow the law of the nucleus, whether or not a row gives up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.nucleus import draw_from_nucleus
from tests.jaxserve.sampling.rows import law, p_value

NUM_DRAWS = 12_000
FLAT = np.random.default_rng(5).normal(size=600).astype(np.float32) * 0.7
draw = jax.jit(draw_from_nucleus)


def attempts(top_p, floor=-np.inf, num_attempts=4, is_wanted=True):
    """(tokens, was one found) of many draws from FLAT."""
    rng, count = np.random.default_rng(1), NUM_DRAWS
    uniforms = rng.integers(0, 2**24, (count, num_attempts, 2)).astype(np.float32) * np.float32(2**-24)
    columns = (np.full(count, value, np.float32) for value in (1.0, floor, top_p))
    logits = jnp.broadcast_to(jnp.asarray(FLAT), (count, len(FLAT)))
    return [np.asarray(a) for a in draw(logits, *columns, uniforms, np.full(count, is_wanted))]


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_tokens_found_follow_the_law(top_p):
    tokens, is_found = attempts(top_p)
    assert p_value(tokens[is_found], law(FLAT, top_p=top_p)) > 1e-4
    assert p_value(tokens[is_found], law(FLAT, top_p=top_p + 0.05)) < 1e-6


def test_each_attempt_succeeds_as_often_as_the_nucleus_is_likely():
    for num_attempts in (1, 3):
        _, is_found = attempts(0.6, num_attempts=num_attempts)
        np.testing.assert_allclose(is_found.mean(), 1 - 0.4**num_attempts, atol=0.02)


def test_top_p_counts_the_mass_that_a_floor_leaves():
    floor = np.sort(FLAT)[-300]
    tokens, is_found = attempts(0.8, floor)
    assert is_found.mean() > 0.99
    assert p_value(tokens[is_found], law(FLAT, top_k=300, top_p=0.8)) > 1e-4
    assert p_value(tokens[is_found], law(FLAT, top_p=0.8)) < 1e-6


def test_rows_that_want_none_find_none():
    assert not attempts(0.9, is_wanted=False)[1].any()
