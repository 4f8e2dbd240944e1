"""Device: acceptance at a given rate, whatever the model says: what drafts of some quality would gain, for benches."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.seeded_random import ACCEPTANCE, row_words, uniforms


def impose_acceptance(
    drawn: Int32[Array, "S W"],
    drafts: Drafts,
    sampling: SamplingBatch,
    positions: Int32[Array, "R"],
    *,
    rate: float,
    vocab_size: int,
) -> Int32[Array, "S W"]:
    """Tokens after each node of which the first draft is the one drawn with probability `rate`, and else is not.

    A row of N drafts in a chain then advances by (1 - rate^(N + 1)) / (1 - rate) tokens on average (Leviathan et al.,
    2023, equation 1). sampling, positions: of all R = S·W nodes.
    """
    node = jnp.arange(drawn.shape[1], dtype=jnp.int32)[None, :, None]
    follows = drafts.followed[:, None] == node  # [S, W, N]
    first = jnp.take_along_axis(drafts.tokens, jnp.argmax(follows, axis=2), axis=1)
    other = jnp.where(drawn == first, (drawn + 1) % vocab_size, drawn)
    chance: jax.Array = uniforms(row_words(sampling, positions, ACCEPTANCE))[0].reshape(drawn.shape)
    return jnp.where(jnp.any(follows, axis=2), jnp.where(chance < rate, first, other), drawn)
