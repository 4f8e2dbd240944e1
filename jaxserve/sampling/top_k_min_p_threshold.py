"""Device: the least logit that top-k and min-p keep, by bisection over a row's whole vocabulary.

Only for rows whose likeliest candidates do not determine it (`top_k_top_p_candidates.py`): up to 32 passes over the
vocabulary, but no sort, and equal values are never separated.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.ordered_floats import boundary


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
    """The largest t such that at least k values are t or more; -inf if unwanted."""
    return boundary(lambda t: jnp.sum(z >= t, dtype=jnp.int32) >= k, is_wanted)[0]
