"""Device: unnormalised probabilities of logits, and the drawing of an index with given weights."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxserve.sampling.largest import reduce_blocks


def weights_of(
    z: Float[Array, "*R V"], top: Float[Array, "*R"], temperature: Float[Array, "*R"], floor: Float[Array, "*R"]
) -> Float[Array, "*R V"]:
    """exp((z - top) / temperature) where z >= floor, else 0; in [0, 1], and 1 at z = top, so that none overflows.

    Forbidden ids (z = -inf) weigh 0 whatever the floor: a floor may be -inf, and -inf / temperature need not be.
    """
    scaled = (z - top[..., None]) / temperature[..., None]
    return jnp.where((z >= floor[..., None]) & (z > -jnp.inf), jnp.exp(scaled), 0.0)


def block_weights(
    logits: Float[Array, "S V"], top: Float[Array, " S"], temperature: Float[Array, " S"], floor: Float[Array, " S"]
) -> Float[Array, "S B"]:
    """Sums of the weights over blocks of neighbours (`topk.BLOCK`)."""

    def of_row(z: Array, top: Array, temperature: Array, floor: Array) -> Array:
        return reduce_blocks(weights_of(z, top, temperature, floor)[None], jnp.sum, fill=0.0)[0]

    return each_row(of_row, logits, top, temperature, floor)


def each_row(function: Callable[..., Array], *arrays: Array) -> Array:
    """`function` of each row: one after the other on a CPU, all together elsewhere.

    On a CPU a row stays in the cache, conditions and loops inside `function` skip the rows that do not need them, and
    there are no temporaries of S x V (fresh memory costs 15 ms per 32 MB in page faults, five times the arithmetic).
    """
    return lax.platform_dependent(
        *arrays, cpu=lambda *rows: lax.map(lambda row: function(*row), rows), default=jax.vmap(function)
    )


def pick(weights: Float[Array, "S N"], uniforms: Float[Array, " S"]) -> Int32[Array, " S"]:
    """Indices drawn with probability weight / sum by inverting the cumulative sum; never one of weight zero.

    The first index whose cumulative weight exceeds uniform * sum. Sums in parallel are not quite monotone, and the
    product may round up to the sum itself: hence the test of the weight, and the largest weight if no index is found.
    """
    cumulative = lax.cumsum(weights, axis=1)
    is_past = (cumulative > uniforms[:, None] * cumulative[:, -1:]) & (weights > 0)
    first = lax.argmax(is_past, 1, jnp.int32)
    return jnp.where(jnp.any(is_past, axis=1), first, lax.argmax(weights, 1, jnp.int32))
