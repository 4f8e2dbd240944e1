"""Prompt outputs: log-probabilities of the requested targets, pooled states of the requesting rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.step.device_batch import DeviceBatch, Heads
from jaxserve.runner.step.prompt_outputs import TILE, pooled_states, prompt_logprobs
from jaxserve.runner.step.step_output import read_logprobs
from jaxserve.sampling.logprobs import top_logprobs
from tests.jaxserve.sampling.rows import make_batch

DIM, VOCAB, TOP = 8, 50, 4


def batch_of(lens: list[int], size: int, fields: list[dict], targets: np.ndarray | None = None) -> DeviceBatch:
    """`lens` tokens a row, padded to `size`; fields that neither function reads are zero."""
    rows = np.repeat(np.arange(len(lens)), lens)
    slots, zeros, sampling = jnp.arange(len(lens)), jnp.zeros(len(lens), jnp.int32), make_batch(fields)
    return DeviceBatch(
        places=None,
        tokens=jnp.zeros(size, jnp.int32),
        positions=jnp.zeros(size, jnp.int32),
        token_rows=jnp.asarray(np.pad(rows, (0, size - len(rows)), constant_values=len(lens) - 1), jnp.int32),
        is_token=jnp.arange(size) < len(rows),
        targets=None if targets is None else jnp.asarray(targets, jnp.int32),
        slots=slots,
        starts=zeros,
        kv_lens=zeros,
        sampling=sampling,
        heads=Heads(jnp.asarray(np.cumsum(lens) - 1, jnp.int32), zeros, zeros > 0, sampling),
        metas=(),
    )


def states(size: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(size, DIM)), jnp.float32)


HEAD = jnp.asarray(np.random.default_rng(9).normal(size=(DIM, VOCAB)), jnp.float32)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("size", [16, TILE, 3 * TILE + 5])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("num_candidates", [0, TOP])
def test_each_wanted_target_has_its_own_wherever_it_stands(size, share, num_candidates):
    rng = np.random.default_rng(1)
    targets = np.where(rng.random(size) < share, rng.integers(0, VOCAB, size), -1)
    batch = batch_of([size // 2, size - size // 2], size, [{"num_prompt_logprobs": num_candidates}] * 2, targets)
    hidden, tiles = states(size), []

    def score(h, targets, num_wanted):
        jax.debug.callback(lambda: tiles.append(len(h)))
        return top_logprobs(h @ HEAD, targets, num_wanted, TOP)

    vector = jax.jit(lambda h: prompt_logprobs(score, batch, h, TOP))(hidden)
    jax.effects_barrier()
    wanted = np.flatnonzero(targets >= 0)
    assert len(tiles) == -(-len(wanted) // min(TILE, size))
    got = read_logprobs(np.asarray(vector), len(wanted), TOP)
    num_wanted = jnp.full(size, num_candidates, jnp.int32)
    chosen, ranks, top_ids, top = top_logprobs(hidden @ HEAD, jnp.maximum(batch.targets, 0), num_wanted, TOP)
    np.testing.assert_allclose(got.chosen, chosen[wanted], atol=1e-5)
    np.testing.assert_array_equal(got.ranks, ranks[wanted])
    np.testing.assert_array_equal(got.top_ids, top_ids[wanted])
    np.testing.assert_allclose(got.top, top[wanted], atol=1e-5)
    assert got.top.any() == (num_candidates > 0 and len(wanted) > 0)


def test_rows_are_added_up_or_give_their_last_token():
    hidden = states(12)
    batch = batch_of([3, 1, 5], 12, [{"pooling": 1}, {"pooling": 2}, {"pooling": 2}])
    pooled = np.asarray(jax.jit(pooled_states)(batch, hidden))
    np.testing.assert_allclose(pooled[0], hidden[:3].sum(0), atol=1e-5)
    np.testing.assert_array_equal(pooled[1:], hidden[jnp.array([3, 8])])


def test_a_row_that_is_not_finite_stays_alone_and_so_does_padding():
    hidden = states(12).at[3].set(jnp.nan).at[9:].set(jnp.inf)
    batch = batch_of([3, 1, 5], 12, [{"pooling": 1}] * 3)
    pooled = np.asarray(pooled_states(batch, hidden))
    assert np.isfinite(pooled).all(axis=1).tolist() == [True, False, True]


def test_nobody_asking_gives_zeros():
    batch = batch_of([3, 1, 5], 12, [{}] * 3)
    assert not np.asarray(pooled_states(batch, states(12))).any()
