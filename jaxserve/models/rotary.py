"""Device: rotary embedding (RoFormer, arXiv 2104.09864)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxserve.models.config.rope import Rope


@jax.named_scope("rope")
def rope_tables(
    rope: Rope, head_dim: int, positions: Int[Array, "T"]
) -> tuple[Float[Array, "T R"], Float[Array, "T R"]]:
    """Cosines and sines of each token's angles, float32, once a step for each kind; R: half the rotated values."""
    frequencies = jnp.array(rope.frequencies(head_dim), jnp.float32)
    angles = positions.astype(jnp.float32)[:, None] * frequencies[None, :]
    return jnp.cos(angles) * rope.attention_factor, jnp.sin(angles) * rope.attention_factor


@jax.named_scope("rope")
def rotate(x: Float[Array, "T A H"], cos: Float[Array, "T R"], sin: Float[Array, "T R"]) -> Float[Array, "T A H"]:
    """The head's first 2R values rotated, first half with second; the rest stays."""
    r = cos.shape[-1]
    a, b, rest = jnp.split(x.astype(jnp.float32), (r, 2 * r), axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1).astype(x.dtype)
