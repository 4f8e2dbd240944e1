"""Groups of tokens: each token is in one, with others of its place, and no place has more groups than it needs."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_gpu.token_groups import NO_TOKEN, TOKENS, group_tokens

NUM_TOKENS, NUM_PLACES = 40, 5
grouped = jax.jit(group_tokens)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, NUM_PLACES - 1), min_size=NUM_TOKENS, max_size=NUM_TOKENS))
def test_every_token_is_in_one_group_of_its_place(places):
    groups = grouped(LoraBatch(jnp.asarray(places, jnp.int32), jnp.zeros((NUM_PLACES, 1, 1, 1), jnp.int32)))
    of_groups, tokens = np.asarray(groups.places), np.asarray(groups.tokens)
    is_token = tokens != NO_TOKEN
    assert sorted(tokens[is_token]) == list(range(NUM_TOKENS))
    for place, members, is_member in zip(of_groups, tokens, is_token, strict=True):
        assert all(places[token] == place for token in members[is_member])
        assert (np.diff(is_member.astype(int)) <= 0).all(), "those of a group come first"
    counts = np.bincount(places, minlength=NUM_PLACES)
    assert is_token.any(1).sum() == sum(-(-counts // TOKENS)), "no group is divided"


def test_the_list_is_as_long_as_the_worst_batch_needs():
    """As many places as possible have a token more than whole groups."""
    places = np.arange(NUM_TOKENS) % NUM_PLACES
    places[-(TOKENS - 1) :] = 0
    groups = grouped(LoraBatch(jnp.asarray(places, jnp.int32), jnp.zeros((NUM_PLACES, 1, 1, 1), jnp.int32)))
    assert (np.asarray(groups.tokens) != NO_TOKEN).sum() == NUM_TOKENS
