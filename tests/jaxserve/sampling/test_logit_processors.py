from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxserve.sampling.logit_processors import mask_padding, process_logits
from jaxserve.sampling.penalty_counts import IN_PROMPT
from jaxserve.sampling.slot_state import init_slot_state, set_edits, set_mask
from tests.jaxserve.sampling.rows import make_batch

V = 70
LOGITS = np.random.default_rng(0).normal(size=(4, V)).astype(np.float32) * 3
POSITIONS = jnp.int32([10, 10, 10, 10])
run = jax.jit(process_logits)


def bits(allowed):
    words = np.zeros(-(-V // 32), np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << token % 32)
    return jnp.asarray(words)


@pytest.fixture
def slots():
    state = init_slot_state(num_slots=6, vocab_width=V, num_edits=4)
    state = set_mask(state, jnp.int32([3]), bits([0, 31, 32, 69])[None])
    state = set_edits(
        state,
        jnp.int32([1]),
        jnp.int32([[5, 6, 6, V]]),
        jnp.float32([[-jnp.inf, 1.5, 2, 99]]),
        jnp.int32([[11, 11, 10, 2**31 - 1]]),
    )
    counts = np.random.default_rng(1).integers(0, 3, (7, V)) * (np.arange(V) % 2)
    return state.replace(counts=jnp.asarray(counts + IN_PROMPT * (np.arange(V) % 3 == 0), jnp.int16))


def test_rows_that_want_nothing_pass_bit_for_bit_among_rows_that_want_all(slots):
    everything = {"slot": 1, "mask_row": 3, "has_edits": 1, "has_penalties": 1, "repetition_penalty": 1.3}
    neutral = {"has_penalties": 1, "has_edits": 1, "mask_row": 0}
    batch = make_batch([{"slot": 2}, everything, {"slot": 2, **neutral}, {"slot": 2, "repetition_penalty": 2.0}])
    logits = LOGITS.copy()
    logits[:, 3] = -0.0
    processed = np.asarray(run(jnp.asarray(logits), batch, POSITIONS, slots))
    for row in (0, 2, 3):
        np.testing.assert_array_equal(processed[row].view(np.int32), logits[row].view(np.int32))
    assert (processed[1] != logits[1]).any()


@pytest.mark.parametrize("platform", ["default", "cuda", "tpu"])
def test_a_mask_leaves_only_its_tokens(slots, monkeypatch, platform):
    monkeypatch.setattr(lax, "platform_dependent", lambda x, **ways: ways.get(platform, ways["default"])(x))
    compiled = jax.jit(partial(process_logits))  # not what other tests compiled
    processed = np.asarray(compiled(jnp.asarray(LOGITS), make_batch([{"mask_row": 3}, {}, {}, {}]), POSITIONS, slots))
    assert np.flatnonzero(processed[0] > -np.inf).tolist() == [0, 31, 32, 69]
    np.testing.assert_array_equal(processed[1:], LOGITS[1:])


@pytest.mark.parametrize(("position", "added"), [(9, 3.5), (10, 1.5), (11, 0)])
def test_edits_add_up_until_their_position(slots, position, added):
    batch = make_batch([{"slot": 1, "has_edits": 1}, {"slot": 2, "has_edits": 1}, {"slot": 1}, {}])
    processed = np.asarray(run(jnp.asarray(LOGITS), batch, jnp.full(4, position, jnp.int32), slots))
    expected = LOGITS.copy()
    expected[0, 6] += np.float32(added)
    expected[0, 5] = -np.inf if position < 11 else expected[0, 5]
    np.testing.assert_allclose(processed, expected, rtol=1e-6)


def test_penalties_equal_their_definitions(slots):
    repetition, frequency, presence = 1.3, 0.4, -0.7
    names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    row = {"slot": 4, "has_penalties": 1, **dict(zip(names, (repetition, frequency, presence), strict=True))}
    processed = run(jnp.asarray(LOGITS), make_batch([row, {}, {}, {}]), POSITIONS, slots)
    counts = np.asarray(slots.counts[4], np.float64)
    times = counts % IN_PROMPT
    z = LOGITS[0].astype(np.float64)
    expected = np.where(counts > 0, np.where(z > 0, z / repetition, z * repetition), z)
    expected -= frequency * times + presence * (times > 0)
    np.testing.assert_allclose(processed[0], expected, rtol=1e-5, atol=1e-6)


def test_a_forbidden_token_stays_forbidden_through_penalties_and_bias(slots):
    state = set_edits(
        slots, jnp.int32([0]), *(jnp.full((1, 4), x, t) for x, t in ((7, "int32"), (50.0, "float32"), (99, "int32")))
    )
    row = {
        "slot": 0,
        "mask_row": 3,
        "has_edits": 1,
        "has_penalties": 1,
        "repetition_penalty": 0.5,
        "frequency_penalty": -2.0,
    }
    processed = run(jnp.asarray(LOGITS), make_batch([row, {}, {}, {}]), POSITIONS, state)
    assert np.flatnonzero(np.asarray(processed[0]) > -np.inf).tolist() == [0, 31, 32, 69]


def test_padding_is_masked_and_logits_become_float32():
    masked = mask_padding(jnp.asarray(LOGITS, jnp.bfloat16), 66)
    assert masked.dtype == jnp.float32
    assert (masked[:, 66:] == -jnp.inf).all()
    np.testing.assert_array_equal(masked[:, :66], jnp.asarray(LOGITS, jnp.bfloat16)[:, :66].astype(jnp.float32))
    np.testing.assert_array_equal(mask_padding(jnp.asarray(LOGITS), V), LOGITS)
