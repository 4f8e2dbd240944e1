"""Rejection sampling of top-p over the whole vocabulary gives the distribution of the nucleus."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling import full_vocabulary_top_p as module
from jaxserve.sampling.full_vocabulary_top_p import draw_from_vocabulary
from tests.jaxserve.sampling.rows import law, p_value

pytestmark = pytest.mark.optimized  # thousands of draws

NUM_DRAWS = 12_000
FLAT = np.random.default_rng(5).normal(size=600).astype(np.float32) * 0.7
TIED = np.round(FLAT * 2).astype(np.float32) / 2
draw = jax.jit(draw_from_vocabulary)


@pytest.fixture(scope="module")
def draw_without_attempts():
    """As for rows whose every attempt has failed. Traced here, before the limit returns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_ATTEMPTS", 0)
        return jax.jit(lambda *rows: draw_from_vocabulary(*rows)).lower(*arguments(FLAT, 1.0)).compile()


def arguments(z, top_p, threshold=-np.inf, num_draws=NUM_DRAWS):
    """Of a draw: equal rows, random words of a fixed seed. top_p: one value, or one per row."""
    words = np.random.default_rng(1).integers(0, 2**32, (num_draws, 2), np.uint32)
    top, temperature, thresholds, top_ps = (
        np.full(num_draws, value, np.float32) for value in (z.max(), 1, threshold, top_p)
    )
    logits = jnp.broadcast_to(jnp.asarray(z), (num_draws, len(z)))
    return logits, top, temperature, thresholds, top_ps, words


def draws(z, top_p, **options):
    """Tokens. options: of `arguments`."""
    return np.asarray(draw(*arguments(z, top_p, **options)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("z", "top_p", "num_draws"),
    [(FLAT, 0.05, 2_000), (TIED, 0.05, 2_000), (FLAT, 0.5, NUM_DRAWS), (TIED, 0.9, NUM_DRAWS)],
)
def test_tokens_follow_the_law_of_the_nucleus(z, top_p, num_draws):
    """A small nucleus is easily told from the whole vocabulary, and needs twenty attempts per draw."""
    tokens = draws(z, top_p, num_draws=num_draws)
    assert p_value(tokens, law(z, top_p=top_p)) > 1e-4
    assert p_value(tokens, law(z)) < 1e-6


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("z", "top_p"), [(FLAT, 1e-6), (TIED, 1e-6), (TIED, 0.01), (FLAT, 0.3)])
def test_the_last_draw_follows_the_law_too(z, top_p, draw_without_attempts):
    tokens = np.asarray(draw_without_attempts(*arguments(z, top_p)))
    expected = law(z, top_p=top_p)
    assert set(tokens) <= set(np.flatnonzero(expected))
    assert (expected > 0).sum() == 1 or p_value(tokens, expected) > 1e-4


def test_flat_rows_with_a_tiny_nucleus_need_no_more_than_the_attempts_and_one_search():
    """At a temperature of a million one attempt in thousands would succeed."""
    z = np.random.default_rng(7).normal(size=50_000).astype(np.float32)
    tokens = draws(z, np.full(64, 1e-5), num_draws=64)
    assert set(tokens) <= set(np.flatnonzero(law(z, top_p=1e-5)))


def test_top_p_is_of_the_mass_above_the_threshold():
    tokens = draws(FLAT, 0.8, threshold=np.sort(FLAT)[-300])
    assert p_value(tokens, law(FLAT, top_k=300, top_p=0.8)) > 1e-4
    assert p_value(tokens, law(FLAT, top_p=0.8)) < 1e-6


def test_a_row_draws_the_same_among_rows_that_need_more_attempts():
    alone = draws(FLAT, 0.9, num_draws=64)
    top_ps = np.where(np.arange(64) % 2, 0.02, 0.9)
    assert (draws(FLAT, top_ps, num_draws=64)[::2] == alone[::2]).all()
    plain = draws(FLAT, 1.0, num_draws=64)
    is_inside = law(FLAT, top_p=0.9)[plain] > 0
    assert (alone[is_inside] == plain[is_inside]).all()  # the first attempt is the draw without a nucleus
    assert 0 < is_inside.sum() < 64
