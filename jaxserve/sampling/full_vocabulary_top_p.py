"""Device: random tokens from the whole vocabulary in two levels, a block and a token inside it; top-p by rejection.

No noise over the vocabulary, no sort, no cumulative sum of it (28, 199 and 4 ms for 32 x 49,152 on two CPU cores).

The top-p threshold takes up to 32 passes over the vocabulary to find. One pass tests whether a token lies in the
nucleus: the tokens likelier than it have less than top-p of the mass. So a row draws until its token lies in the
nucleus, and each attempt succeeds with a probability of at least top-p. (Rejection sampling: von Neumann, 1951,
"Various techniques used in connection with random digits".) Where top-p is small and the distribution flat, most
attempts would fail: after the last one the threshold is found after all. Either way is exact, so their mixture is.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32, UInt32

from jaxserve.sampling.argmax_top_k import BLOCK, take_blocks
from jaxserve.sampling.ordered_floats import boundary
from jaxserve.sampling.probabilities import block_weights, draw_index, each_row, weights_of
from jaxserve.sampling.seeded_random import next_words, uniforms

# Each takes one pass over the vocabulary. At top-p 0.9 one row in 10^8 fails in all of them, at 0.5 one in 256.
MAX_ATTEMPTS = 8


class Row(NamedTuple):
    """What decides the nucleus of a row, or of all rows with a leading axis."""

    logits: Array
    top: Array
    temperature: Array
    threshold: Array
    nucleus_mass: Array


def draw_from_vocabulary(
    logits: Float[Array, "S V"],
    top: Float[Array, " S"],
    temperature: Float[Array, " S"],
    threshold: Float[Array, " S"],
    top_p: Float[Array, " S"],
    words: UInt32[Array, "S 2"],
) -> Int32[Array, " S"]:
    """Each row's token among its logits >= threshold and within the nucleus of `top_p` (1: all of them).

    top: each row's largest logit. words: random words, one for each level, so the distribution inside a block keeps 24
    bits however small the block's mass is. A row draws the same token whatever the other rows are.
    """
    # Without the barrier XLA for GPUs sums all weights of a row instead of its blocks, for which it stores them.
    blocks = lax.optimization_barrier(block_weights(logits, top, temperature, threshold))
    has_nucleus = top_p < 1
    rows = Row(logits, top, temperature, threshold, top_p * jnp.sum(blocks, axis=1))

    def attempt(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        count, words, token, is_left = state
        drawn, logit = draw_once(logits, blocks, top, temperature, threshold, *uniforms(words))
        token = jnp.where(is_left, drawn, token)
        is_open = is_left & has_nucleus
        is_left = lax.cond(
            jnp.any(is_open),
            lambda: each_row(_is_outside, is_open, rows, logit),
            lambda: jnp.zeros_like(is_left),
        )
        return count + 1, next_words(words), token, is_left

    def is_unfinished(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(state[3]) & (state[0] < MAX_ATTEMPTS)

    start = jnp.int32(0), words, jnp.zeros_like(top, jnp.int32), jnp.ones_like(top, bool)
    _, words, token, is_left = lax.while_loop(is_unfinished, attempt, start)

    def draw_left() -> Array:
        lowest = jnp.maximum(threshold, each_row(nucleus_threshold, is_left, rows))
        blocks = block_weights(logits, top, temperature, lowest)
        return jnp.where(is_left, draw_once(logits, blocks, top, temperature, lowest, *uniforms(words))[0], token)

    return lax.cond(jnp.any(is_left), draw_left, lambda: token)


def draw_once(
    logits: Float[Array, "S V"],
    blocks: Float[Array, "S B"],
    top: Float[Array, " S"],
    temperature: Float[Array, " S"],
    threshold: Float[Array, " S"],
    uniforms: Float[Array, " S"],
    uniforms_in_block: Float[Array, " S"],
) -> tuple[Int32[Array, " S"], Float[Array, " S"]]:
    """Tokens among the logits >= threshold, and their logits. blocks: the result of `block_weights`."""
    block = draw_index(blocks, uniforms)
    inside = take_blocks(logits, block[:, None])[:, 0]
    place = draw_index(weights_of(inside, top, temperature, threshold), uniforms_in_block)
    return block * BLOCK + place, jnp.take_along_axis(inside, place[:, None], axis=1, mode="clip")[:, 0]


def _is_outside(is_wanted: Bool[Array, ""], row: Row, logit: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the tokens likelier than `logit` have the nucleus's mass without it; False where unwanted."""
    return lax.cond(is_wanted, lambda: _is_below_nucleus(row, _weights(row), logit), lambda: jnp.asarray(False))


def nucleus_threshold(is_wanted: Bool[Array, ""], row: Row) -> Float[Array, ""]:
    """The least logit that is not below the nucleus; -inf where unwanted."""

    def compute() -> Array:
        def search(weights_of_pass: Callable[[], Array]) -> Array:
            def excess(logit: Array) -> Array:
                return jnp.where(_is_below_nucleus(row, weights_of_pass(), logit), 1, -1)

            return boundary(excess, is_wanted)[1]

        def computed_once() -> Array:
            weights = _weights(row)
            return search(lambda: weights)

        def computed_each_time() -> Array:
            # The barrier keeps XLA from taking the weights of all rows out of the loop: 33 MB for 64 rows of Llama 3.
            return search(lambda: _weights(lax.optimization_barrier(row)))

        return lax.platform_dependent(cpu=computed_once, default=computed_each_time)

    return lax.cond(is_wanted, compute, lambda: jnp.float32(-jnp.inf))


def _weights(row: Row) -> Float[Array, " V"]:
    return weights_of(row.logits, row.top, row.temperature, row.threshold)


def _is_below_nucleus(row: Row, weights: Float[Array, " V"], logit: Float[Array, ""]) -> Bool[Array, ""]:
    return jnp.sum(jnp.where(row.logits > logit, weights, 0.0)) >= row.nucleus_mass
