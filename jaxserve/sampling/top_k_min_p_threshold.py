"""Device: the least logit that top-k and min-p keep, by bisection over a row's whole vocabulary.

Only for rows whose likeliest candidates do not determine it (`top_k_top_p_candidates.py`): some 20 passes over the
vocabulary, at most 32, but no sort, and equal values are never separated.
"""

import math

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.ordered_floats import boundary

# Counts of 64 values fit 8 bits: on CPU a pass takes a third of the time that 32-bit counts take (33 us, not 98, for
# 262,144 values). Elsewhere the padded copy of all rows costs more than it saves: 34 MB for 64 rows of Llama 3.
_COUNTED = (64, 128)


def min_p_threshold(
    top: Float[Array, "*R"], temperature: Float[Array, "*R"], min_p: Float[Array, "*R"]
) -> Float[Array, "*R"]:
    """The least logit of tokens at least `min_p` times as probable as the likeliest one; -inf for min_p = 0."""
    return top + temperature * jnp.log(min_p)


def vocabulary_threshold(
    z: Float[Array, " V"],
    temperature: Float[Array, ""],
    top_k: Int32[Array, ""],
    min_p: Float[Array, ""],
    is_wanted: Bool[Array, ""],
) -> Float[Array, ""]:
    """The least logit that min-p and top-k keep in one row; -inf if unwanted."""

    def compute() -> Array:
        is_top_k = (top_k > 0) & (top_k < len(z))
        return jnp.maximum(min_p_threshold(jnp.max(z), temperature, min_p), kth_largest(z, top_k, is_top_k))

    return lax.cond(is_wanted, compute, lambda: jnp.float32(-jnp.inf))


def kth_largest(z: Float[Array, " V"], k: Int32[Array, ""], is_wanted: Bool[Array, ""]) -> Float[Array, ""]:
    """A float that the k largest values reach, and no others but values equal to the kth; -inf if unwanted."""

    def in_bytes(z: Array, k: Array, is_wanted: Array) -> Array:
        rows = jnp.pad(z, (0, -len(z) % math.prod(_COUNTED)), constant_values=-jnp.inf).reshape(-1, *_COUNTED)

        def excess(t: Array) -> Array:
            return jnp.sum(jnp.sum(rows >= t, axis=1, dtype=jnp.int8), dtype=jnp.int32) - k

        return boundary(excess, is_wanted)[0]

    def as_they_are(z: Array, k: Array, is_wanted: Array) -> Array:
        def excess(t: Array) -> Array:
            return jnp.sum(z >= t, dtype=jnp.int32) - k

        return boundary(excess, is_wanted)[0]

    return lax.platform_dependent(z, k, is_wanted, cpu=in_bytes, default=as_they_are)
