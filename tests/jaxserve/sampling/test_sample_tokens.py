"""A row's token depends on the row alone, and has nonzero probability whatever the logits are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.logit_processors import _bits_at_once, _bits_in_parts
from jaxserve.sampling.probabilities import draw_index
from jaxserve.sampling.sample_tokens import draw_tokens, is_bad, sample_tokens
from jaxserve.sampling.slot_state import init_slot_state
from tests.jaxserve.sampling.rows import kept, make_batch

V = 1500
run = jax.jit(draw_tokens)
KINDS = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"top_k": 50, "top_p": 0.95},
    {"top_k": 200},
    {"top_p": 0.9999},
    {"min_p": 0.1},
    {"temperature": 2.0, "top_k": 64, "min_p": 0.01},
    {"has_penalties": 1, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    {"mask_row": 4},
    {"has_edits": 1, "top_k": 3},
    {"temperature": 0.0, "has_penalties": 1, "frequency_penalty": 1.0},
]


def slots():
    state = init_slot_state(len(KINDS), V, 2)
    rng = np.random.default_rng(3)
    return state.replace(
        counts=jnp.asarray(rng.integers(0, 4, state.counts.shape), jnp.int16),
        mask_rows=state.mask_rows.at[4].set(jnp.asarray(rng.integers(0, 2**32, state.mask_rows.shape[1], np.uint32))),
        edit_ids=jnp.asarray(rng.integers(0, V, state.edit_ids.shape), jnp.int32),
        edit_bias=state.edit_bias + 3,
        edit_until=state.edit_until + 10,
    )


@pytest.mark.parametrize("scale", [0.5, 4.0], ids=["flat", "steep"])
def test_a_token_is_the_same_among_any_batch_mates(scale):
    state = slots()
    logits = np.random.default_rng(0).normal(size=(len(KINDS), V)).astype(np.float32) * np.float32(scale)
    rows = [{**kind, "slot": i, "seed_low": i} for i, kind in enumerate(KINDS)]
    step = jax.jit(sample_tokens)

    def tokens(order, position):
        batch, positions = make_batch([rows[i] for i in order]), jnp.full(len(order), position, jnp.int32)
        return np.asarray(step(logits[np.array(order)], batch, positions, state)[0])

    everyone = list(range(len(KINDS)))
    for position in range(5):
        together = tokens(everyone, position)
        permuted = np.random.default_rng(position).permutation(len(KINDS)).tolist()
        np.testing.assert_array_equal(tokens(permuted, position), together[permuted])
        for i in everyone:
            assert tokens([i], position)[0] == together[i]
            among_greedy = [0] * i + [i] + [0] * (len(KINDS) - i - 1)
            assert tokens(among_greedy, position)[i] == together[i]


EDGES = {
    "one finite logit": np.where(np.arange(V) == 777, np.float32(-3), np.float32(-np.inf)),
    "runs of -inf": np.where(
        np.arange(V) // 200 % 2 == 0, np.float32(-np.inf), np.linspace(-2, 2, V, dtype=np.float32)
    ),
    "huge": np.random.default_rng(1).normal(size=V).astype(np.float32) * np.float32(1e37),
    "all equal": np.zeros(V, np.float32),
    "tiny differences": 1000 + np.random.default_rng(2).random(V).astype(np.float32) / 1000,
}


@pytest.mark.parametrize("name", EDGES)
def test_a_token_of_zero_weight_is_never_drawn(name):
    z = EDGES[name]
    truncations = [
        {"temperature": t, "top_k": k, "top_p": p, "min_p": m}
        for t in (0.01, 1.0, 1e4)
        for k, p, m in ((0, 1, 0), (V, 1, 0), (3, 1, 0), (0, 1e-7, 0), (0, 0.999, 0), (0, 1, 1), (300, 0.9, 0.01))
    ]
    rows = [{**t, "seed_low": seed} for t in truncations for seed in range(20)]
    tokens = np.asarray(run(np.stack([z] * len(rows)), make_batch(rows), jnp.full(len(rows), 5, jnp.int32)))
    for i, truncation in enumerate(truncations):
        mine = tokens[20 * i : 20 * (i + 1)]
        assert np.isfinite(z[mine]).all()
        assert truncation["top_p"] in (0.9, 0.999) or kept(z, **truncation)[mine].all()
    assert not is_bad(jnp.asarray(z)[None])[0]


@pytest.mark.parametrize("u", [0.0, 1 - 2**-24])
def test_the_ends_of_the_unit_interval_draw_tokens_with_weight(u):
    rng = np.random.default_rng(0)
    for length in (1, 2, 64, 65, 768):
        weights = rng.random((50, length), np.float32) * (rng.random((50, length)) < 0.3)
        weights[:, rng.integers(length)] = 2**-20
        chosen = np.asarray(jax.jit(draw_index)(weights, jnp.full(50, u, jnp.float32)))
        assert (np.take_along_axis(weights, chosen[:, None], axis=1) > 0).all()


@pytest.mark.parametrize("width", [12, V, 6000])
def test_rows_without_a_law_are_flagged_and_still_give_an_id(width):
    z = np.random.default_rng(0).normal(size=(6, width)).astype(np.float32)
    z[1], z[2] = -np.inf, np.nan
    z[3, width // 2], z[4, width - 1] = np.nan, np.inf
    z[5, : width - 1] = -np.inf
    for kind in ({}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.9}, {"top_k": 100}):
        tokens = np.asarray(run(z, make_batch([kind] * 6), jnp.zeros(6, jnp.int32)))
        assert ((tokens >= 0) & (tokens < width)).all()
        assert tokens[5] == width - 1
    assert jax.jit(is_bad)(z).tolist() == [False, True, True, True, True, False]


def test_bits_in_parts_are_those_at_once():
    """TPUs have the parts."""
    words = jnp.asarray(np.random.default_rng(0).integers(0, 2**32, (3, 5), np.uint32))
    at_once, in_parts = (np.asarray(bits(words)) & 1 for bits in (_bits_at_once, _bits_in_parts))
    np.testing.assert_array_equal(in_parts, at_once)
    assert 0.3 < at_once.mean() < 0.7
