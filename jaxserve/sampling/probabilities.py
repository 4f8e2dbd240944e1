"""Device: unnormalized probabilities of logits, and random indices by given weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxserve.sampling.argmax_top_k import reduce_blocks


def weights_of(
    z: Float[Array, "*R V"], top: Float[Array, "*R"], temperature: Float[Array, "*R"], threshold: Float[Array, "*R"]
) -> Float[Array, "*R V"]:
    """exp((z - top) / temperature) where z >= threshold, else 0; in [0, 1], and 1 at z = top, so nothing overflows.

    Forbidden ids (z = -inf) weigh 0 whatever the threshold: it may be -inf, and -inf / temperature need not be.
    """
    scaled = (z - top[..., None]) / temperature[..., None]
    return jnp.where((z >= threshold[..., None]) & (z > -jnp.inf), jnp.exp(scaled), 0.0)


def block_weights(
    logits: Float[Array, "S V"], top: Float[Array, " S"], temperature: Float[Array, " S"], threshold: Float[Array, " S"]
) -> Float[Array, "S B"]:
    """Sums of the weights over blocks of adjacent tokens (`argmax_top_k.BLOCK`)."""

    def of_row(z: Array, top: Array, temperature: Array, threshold: Array) -> Array:
        return reduce_blocks(weights_of(z, top, temperature, threshold)[None], jnp.sum, fill=0.0)[0]

    return each_row(of_row, logits, top, temperature, threshold)


def each_row(function: Callable[..., Array], *arrays: Any) -> Array:
    """`function` of each row: sequentially on CPU, vectorized elsewhere. arrays: with a row axis, or trees of such.

    On CPU a row stays in the cache, conditions and loops inside `function` skip the rows that do not need them, and
    there are no temporaries of S x V (fresh memory costs 15 ms per 32 MB in page faults, five times the arithmetic).
    """

    def one_by_one(*arrays: Any) -> Array:
        def of_row(row: Any) -> Array:
            return function(*row)

        return lax.map(of_row, arrays)

    return lax.platform_dependent(*arrays, cpu=one_by_one, default=jax.vmap(function))


def draw_index(weights: Float[Array, "S N"], uniforms: Float[Array, " S"]) -> Int32[Array, " S"]:
    """Indices drawn with probability weight / sum by inverting the cumulative sum; never one of weight zero.

    The first index whose cumulative weight exceeds uniform * sum. Parallel sums are not quite monotone, and the product
    may round up to the sum itself: hence the test of the weight, and the largest weight if no index is found.
    """
    cumulative = lax.cumsum(weights, axis=1)
    is_past = (cumulative > uniforms[:, None] * cumulative[:, -1:]) & (weights > 0)
    first = lax.argmax(is_past, 1, jnp.int32)
    return jnp.where(jnp.any(is_past, axis=1), first, lax.argmax(weights, 1, jnp.int32))
