"""The compiled step neither sorts the vocabulary, nor copies its state, nor holds many copies of the logits."""

import re

import jax
import jax.numpy as jnp
import pytest

from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.penalty_counts import update_counts
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.slot_state import init_slot_state
from tests.jaxserve.sampling.rows import make_batch

ROWS = 8


def step(state, hidden, weight, batch, tokens):
    rows = jnp.arange(ROWS, dtype=jnp.int32)
    counts = update_counts(state.counts, batch, tokens, rows, rows, jnp.zeros(ROWS, bool))
    state = state.replace(counts=counts)
    logits = mask_padding(hidden @ weight, weight.shape[1] - 128)
    tokens, is_bad, processed = sample_tokens(logits, batch, rows, state)
    return state, tokens, is_bad, top_logprobs(processed, tokens, batch.num_logprobs, 20)


def largest_sort(text):
    """The longest dimension of any operand that the compiled program sorts."""
    sizes = [re.findall(r"\d+", shape) for shape in re.findall(r"= [^=]*?\w+\[([\d,]*)\][^=]* sort\(", text)]
    return max((int(size) for shape in sizes for size in shape), default=0)


@pytest.mark.parametrize("vocab_size", [49152, 262144])
def test_nothing_of_the_vocabulary_s_size_is_sorted_or_copied(vocab_size):
    width = vocab_size + 128
    state = init_slot_state(64, width, 16)
    batch, tokens = make_batch([{}] * ROWS), jnp.zeros(ROWS, jnp.int32)
    arguments = (state, jnp.zeros((ROWS, 4)), jnp.zeros((4, width)), batch, tokens)
    compiled = jax.jit(step, donate_argnums=0).lower(*arguments).compile()
    assert largest_sort(compiled.as_text()) <= 65
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == sum(x.nbytes for x in jax.tree.leaves(state))
    # The logits, processed in place, and a few single rows.
    assert memory.temp_size_in_bytes < (ROWS + 6) * width * 4


def test_a_sort_would_be_seen():
    def naive(x):
        values, ids = jax.lax.top_k(x, 50)
        return ids[:, 0] + jnp.argmax(jnp.cumsum(jax.nn.softmax(values), axis=1) > 0.5, axis=1)

    assert largest_sort(jax.jit(naive).lower(jnp.zeros((ROWS, 49152))).compile().as_text()) == 49152
