"""Device: `TokenGroups`: a batch's tokens in groups that a thread block multiplies by the matrices of one adapter.

    places of tokens       2 0 1 2 2 0 1 2 2 2 2 2
    groups of 4 tokens     place 0: 1 5 - -      place 1: 2 6 - -      place 2: 0 3 4 7      place 2: 8 9 10 11

An adapter is read once for each of its groups. Where its tokens stand in the batch does not matter, so that rows share
groups.
"""

from dataclasses import dataclass
from typing import no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.lora_matmul.lora_batch import LoraBatch

TOKENS = 8
"""Of a group. With as many runs of inputs they are the 64 columns of a product (`shrink_thread_block.py`)."""
NO_TOKEN = -1


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class TokenGroups:
    """One batch's, for all sites and layers. All int32."""

    places: Int[Array, "groups"]
    """Of the groups' adapters; 0: their tokens have none."""
    tokens: Int[Array, "groups 8"]
    """Each token of the batch once. NO_TOKEN: those of a group come first, and the last groups may have none."""


def group_tokens(batch: LoraBatch) -> TokenGroups:
    """Groups in the order of places, their tokens in that of the batch."""
    places, num_tokens, num_places = batch.places, len(batch.places), len(batch.tables)
    num_groups = min(num_tokens, (num_tokens + num_places * (TOKENS - 1)) // TOKENS)
    is_at = (places[:, None] == jnp.arange(num_places, dtype=jnp.int32)[None]).astype(jnp.int32)
    so_far = jnp.cumsum(is_at, axis=0, dtype=jnp.int32)
    number = jnp.sum(so_far * is_at, axis=1, dtype=jnp.int32) - 1  # of a token among those of its place
    counts = -(-so_far[-1] // TOKENS)
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    group = (ends - counts)[places] + number // TOKENS
    tokens = jnp.full((num_groups, TOKENS), NO_TOKEN, jnp.int32)
    tokens = tokens.at[group, number % TOKENS].set(jnp.arange(num_tokens, dtype=jnp.int32))
    own = jnp.searchsorted(ends, jnp.arange(num_groups), side="right", method="compare_all").astype(jnp.int32)
    return TokenGroups(jnp.where(own < num_places, own, 0), tokens)
