"""Tokens follow the distribution that the parameters define: chi-square tests with fixed seeds, which wrong
distributions fail."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.full_vocabulary_top_p import draw_once
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.probabilities import block_weights, draw_index
from jaxserve.sampling.sample_tokens import draw_tokens, sample_tokens
from jaxserve.sampling.slot_state import init_slot_state, set_mask
from tests.jaxserve.sampling.rows import law, make_batch, p_value

pytestmark = pytest.mark.optimized  # thousands of draws

NUM_DRAWS = 6_000
SMALL = np.log(np.float32([0.2, 0.16, 0.14, 0.12, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.02, 0.02]) + np.float32(0))
FLAT = np.random.default_rng(5).normal(size=600).astype(np.float32) * 0.7
STEEP = np.random.default_rng(6).normal(size=600).astype(np.float32) * 3
sample_all = jax.jit(draw_tokens)


def draws(z, truncation, num_draws=NUM_DRAWS, position=3):
    batch = jax.tree.map(lambda x: jnp.repeat(x, num_draws), make_batch([truncation]))
    batch = dataclasses.replace(batch, seed_low=jnp.arange(num_draws, dtype=jnp.uint32))
    logits = jnp.broadcast_to(jnp.asarray(z), (num_draws, len(z)))
    return np.asarray(sample_all(logits, batch, jnp.full(num_draws, position, jnp.int32)))


@pytest.mark.thinned(9)
@pytest.mark.parametrize("z", [SMALL, FLAT, STEEP], ids=["small", "flat", "steep"])
@pytest.mark.parametrize(
    "truncation",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 5},
        {"top_k": 64},
        {"top_k": 65},
        {"top_k": 200},
        {"top_p": 0.3},
        {"top_p": 0.95},
        {"min_p": 0.2},
        {"temperature": 0.8, "top_k": 6, "top_p": 0.7, "min_p": 0.05},
        {"temperature": 1.5, "top_k": 150, "top_p": 0.8, "min_p": 0.01},
    ],
    ids=str,
)
def test_tokens_follow_the_law(z, truncation):
    assert p_value(draws(z, truncation), law(z, **truncation)) > 1e-4


def test_a_wrong_order_or_temperature_is_seen():
    tokens = draws(SMALL, {"temperature": 1.0, "top_k": 4, "top_p": 0.75})
    top_p_first = law(np.where(law(SMALL, top_p=0.75) > 0, SMALL, -np.inf), top_k=4)
    assert p_value(tokens, law(SMALL, top_k=4, top_p=0.75)) > 1e-4
    assert p_value(tokens, top_p_first) < 1e-6
    assert p_value(draws(STEEP, {}), law(STEEP, temperature=1.1)) < 1e-6


def test_a_biased_number_is_seen():
    weights = jnp.broadcast_to(jnp.exp(SMALL), (NUM_DRAWS, len(SMALL)))
    u = (jnp.arange(NUM_DRAWS, dtype=jnp.float32) + 0.5) / NUM_DRAWS
    assert p_value(np.asarray(draw_index(weights, u)), law(SMALL)) > 1e-4
    assert p_value(np.asarray(draw_index(weights, u * jnp.float32(0.97))), law(SMALL)) < 1e-6


@pytest.mark.parametrize("truncation", [{}, {"top_k": 4}], ids=["vocabulary", "candidates"])
def test_tokens_at_two_positions_and_of_two_samples_are_independent(truncation):
    here = draws(SMALL, truncation)
    joint = np.outer(law(SMALL, **truncation), law(SMALL, **truncation)).reshape(-1)
    for other in (draws(SMALL, truncation, position=4), draws(SMALL, truncation | {"sample_index": 1})):
        assert p_value(here * len(SMALL) + other, joint) > 1e-4
    assert p_value(here * len(SMALL) + draws(SMALL, truncation), joint) == 0


def test_tokens_of_a_tiny_block_keep_their_shares():
    """A block with 2**-20 of the mass: one 24-bit number for both levels would draw at most 16 of its tokens."""
    z = np.zeros((1, 128), np.float32)
    z[:, 64:] = np.log(np.float32(2**-20))
    ends = jnp.float32(1 - 2**-24)  # draws the last block
    uniforms = (jnp.arange(6400, dtype=jnp.float32) + 0.5) / 6400

    @jax.jit
    def inside(uniforms):
        one = jnp.ones_like(uniforms)
        logits, law = jnp.broadcast_to(z, (len(uniforms), 128)), (0 * one, one, -jnp.inf * one)
        return draw_once(logits, block_weights(logits, *law), *law, ends * one, uniforms)[0]

    assert p_value(np.asarray(inside(uniforms)) - 64, np.full(64, 1 / 64)) > 1e-4


@pytest.mark.thinned(1)
@pytest.mark.parametrize("vocab_size", [49152, 49100])
def test_padding_is_never_drawn_from_a_real_vocabulary(vocab_size):
    width, num_rows = 49280, 32
    z = np.full(width, -30, np.float32)
    support = np.arange(16) * (vocab_size // 16) + vocab_size % 16
    z[support] = np.linspace(-1, 1, 16)
    z[vocab_size:] = 5
    rows = [[{}, {"top_k": 12}, {"top_p": 0.9}, {"top_k": 300, "temperature": 0.7}][i % 4] for i in range(num_rows)]
    state = init_slot_state(num_rows, width, 1)

    batch = make_batch([{**row, "seed_low": i} for i, row in enumerate(rows)])
    run = jax.jit(lambda logits, *arguments: sample_tokens(mask_padding(logits, vocab_size), *arguments)[0])
    logits = jnp.broadcast_to(jnp.asarray(z), (num_rows, width))
    tokens = np.stack([run(logits, batch, jnp.full(num_rows, i, jnp.int32), state) for i in range(40)])
    assert tokens.max() < vocab_size
    for i, row in enumerate(rows[:4]):
        mine = np.searchsorted(support, tokens[:, i::4].reshape(-1))
        assert p_value(mine, law(z[support], **row)) > 1e-4


def test_penalties_edits_and_masks_shape_the_law():
    num_tokens = len(SMALL)
    state = init_slot_state(1, num_tokens, 1)
    state = state.replace(
        counts=state.counts.at[0].set(jnp.arange(num_tokens, dtype=jnp.int16) % 3),
        edit_ids=state.edit_ids.at[0].set(2),
        edit_bias=state.edit_bias.at[0].set(1.0),
        edit_until=state.edit_until.at[0].set(100),
    )
    state = set_mask(state, jnp.int32([1]), jnp.uint32([[0b1011_1110_1111]]))
    row = {"mask_row": 1, "has_edits": 1, "has_penalties": 1, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    batch = jax.tree.map(lambda x: jnp.repeat(x, NUM_DRAWS), make_batch([{**row, "slot": 0, "top_p": 0.9}]))
    batch = dataclasses.replace(batch, seed_low=jnp.arange(NUM_DRAWS, dtype=jnp.uint32))
    logits = jnp.broadcast_to(SMALL, (NUM_DRAWS, num_tokens))
    positions = jnp.full(NUM_DRAWS, 9, jnp.int32)
    tokens, is_bad, processed = jax.jit(sample_tokens)(logits, batch, positions, state)
    times = np.arange(num_tokens) % 3
    expected = SMALL - np.float32(0.3) * times - np.float32(0.5) * (times > 0)
    expected[2] += 1
    expected[[4, 10]] = -np.inf
    np.testing.assert_allclose(processed[0], expected, rtol=1e-5)
    assert not is_bad.any()
    assert p_value(np.asarray(tokens), law(expected, top_p=0.9)) > 1e-4
