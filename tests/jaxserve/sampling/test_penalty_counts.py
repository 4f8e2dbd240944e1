import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.sampling.penalty_counts import IN_PROMPT, MAX_COUNT, count_tokens, read_counts, set_counts, update_counts
from tests.jaxserve.sampling.rows import make_batch

V, SLOTS, ROWS, TOKENS = 12, 4, 3, 16
update = jax.jit(update_counts)


def oracle(sequences: dict[int, tuple[list[int], int]]) -> np.ndarray:
    """Counts of (tokens, prompt_len) by slot."""
    counts = np.zeros((SLOTS + 1, V), np.int16)
    for slot, (tokens, prompt_len) in sequences.items():
        counts[slot] = np.bincount(tokens[prompt_len:], minlength=V)
        counts[slot][list(set(tokens[:prompt_len]))] += IN_PROMPT
    return counts


@given(st.integers(0, 2**32 - 1))
def test_counts_follow_every_history_of_chunks_restarts_and_new_sequences(seed):
    rng = np.random.default_rng(seed)
    counts = jnp.zeros((SLOTS + 1, V), jnp.int16)
    sequences: dict[int, tuple[list[int], int]] = {}
    fed = dict.fromkeys(range(SLOTS), 0)
    for _ in range(rng.integers(1, 8)):
        slots = rng.permutation(SLOTS)[: rng.integers(1, ROWS + 1)].tolist()
        rows, tokens, token_rows, positions, resets = [], [], [], [], []
        for row, slot in enumerate(slots):
            is_new = slot not in sequences or rng.random() < 0.2
            if is_new or rng.random() < 0.2:  # a new sequence takes the slot, or its sequence is recomputed
                fed[slot] = 0
            if is_new:
                sequences[slot] = (rng.integers(0, V, rng.integers(1, 6)).tolist(), 0)
                sequences[slot] = (sequences[slot][0], len(sequences[slot][0]))
            known, prompt_len = sequences[slot]
            if fed[slot] == len(known):
                known.append(int(rng.integers(0, V)))
            end = min(len(known), fed[slot] + int(rng.integers(1, 6)))
            rows.append({"slot": slot, "prompt_len": prompt_len, "has_penalties": 1})
            resets.append(fed[slot] == 0)
            tokens += known[fed[slot] : end]
            token_rows += [row] * (end - fed[slot])
            positions += range(fed[slot], end)
            fed[slot] = end
        pad_rows, pad_tokens = ROWS - len(rows), TOKENS - len(tokens)
        rows += [{"slot": SLOTS, "has_penalties": 1}] * pad_rows
        batch = make_batch(rows)
        arrays = (tokens + [3] * pad_tokens, token_rows + [ROWS] * pad_tokens, positions + [0] * pad_tokens)
        resets = jnp.asarray(resets + [False] * pad_rows)
        counts = update(counts, batch, *(jnp.asarray(x, jnp.int32) for x in arrays), resets)
    expected = oracle({slot: (tokens[: fed[slot]], prompt_len) for slot, (tokens, prompt_len) in sequences.items()})
    np.testing.assert_array_equal(counts, expected)


def test_counts_from_the_host_equal_counts_of_steps():
    rng = np.random.default_rng(0)
    counts = jnp.full((SLOTS + 1, V), 7, jnp.int16)
    for slot in range(SLOTS):
        tokens, prompt_len = rng.integers(0, V, 40), int(rng.integers(1, 41))
        counts = set_counts(counts, jnp.int32([slot]), jnp.asarray(count_tokens(tokens, prompt_len, V)[None]))
        np.testing.assert_array_equal(counts[slot], oracle({slot: (tokens.tolist(), prompt_len)})[slot])
    assert (counts[SLOTS] == 7).all()
    many = count_tokens(np.zeros(3 * MAX_COUNT, np.int64), 1, V)
    assert many[0] == IN_PROMPT + MAX_COUNT


@pytest.mark.parametrize("padding_row", [-1, 1, 2, 99], ids=["before", "scratch slot", "no penalties", "beyond"])
def test_padding_and_rows_without_penalties_leave_no_trace(padding_row):
    batch = make_batch([{"slot": 0, "has_penalties": 1}, {"slot": SLOTS, "has_penalties": 1}, {"slot": 2}])
    tokens, positions = jnp.int32([5, 6, 7]), jnp.int32([0, 1, 2])
    before = jnp.zeros((SLOTS + 1, V), jnp.int16).at[2, 3].set(9)
    after = update(before, batch, tokens, jnp.int32([0, padding_row, padding_row]), positions, jnp.zeros(3, bool))
    np.testing.assert_array_equal(after, before.at[0, 5].set(1))


def test_a_reset_clears_only_its_own_slot_and_only_with_penalties():
    before = jnp.full((SLOTS + 1, V), 5, jnp.int16)
    batch = make_batch([{"slot": 2, "has_penalties": 1}, {"slot": 1}, {"slot": 3, "has_penalties": 1}])
    none = jnp.zeros(3, jnp.int32)
    after = update(before, batch, none, none + 9, none, jnp.array([True, True, False]))
    np.testing.assert_array_equal(after, before.at[2].set(0))


def test_counts_stop_at_the_largest_without_touching_the_prompt_bit():
    num_tokens = 3 * MAX_COUNT
    batch = make_batch([{"slot": 1, "has_penalties": 1}, {"slot": 2, "has_penalties": 1}])
    counts = jnp.zeros((SLOTS + 1, V), jnp.int16).at[2, 4].set(IN_PROMPT)
    rows = jnp.arange(num_tokens, dtype=jnp.int32) % 2
    for _ in range(3):
        tokens, positions = jnp.full(num_tokens, 4, jnp.int32), jnp.ones(num_tokens, jnp.int32)
        counts = update(counts, batch, tokens, rows, positions, jnp.zeros(2, bool))
    times, is_seen = jax.vmap(read_counts, in_axes=(None, 0))(counts, jnp.int32([1, 2, 3]))
    assert times[:, 4].tolist() == [MAX_COUNT, MAX_COUNT, 0]
    assert is_seen[:, 4].tolist() == [True, True, False]
    assert (counts[1, 4] < IN_PROMPT) & (counts[2, 4] >= IN_PROMPT)


@pytest.mark.parametrize("num_tokens", [64, 4096])
def test_the_update_is_in_place(num_tokens):
    counts = jnp.zeros((257, 8192), jnp.int16)
    rows, tokens = make_batch([{}] * 32), jnp.zeros(num_tokens, jnp.int32)
    lowered = jax.jit(update_counts, donate_argnums=0).lower(counts, rows, tokens, tokens, tokens, jnp.zeros(32, bool))
    memory = lowered.compile().memory_analysis()
    assert memory.alias_size_in_bytes == counts.nbytes
    assert memory.temp_size_in_bytes < counts.nbytes / 20
