"""Device: rows of few tokens side by side, as a batch has them."""

import jax.numpy as jnp
from jaxtyping import Array, Int32


def pack_rows(tokens: Int32[Array, "S W"], lens: Int32[Array, "S"]) -> Int32[Array, "T"]:
    """The first `lens` tokens of each row, row after row, then zeros; T = S·W."""
    width = tokens.shape[1]
    ends = jnp.cumsum(lens, dtype=jnp.int32)
    node = jnp.arange(width, dtype=jnp.int32)[None]
    places = jnp.where(node < lens[:, None], (ends - lens)[:, None] + node, tokens.size)
    return jnp.zeros(tokens.size, jnp.int32).at[places].set(tokens, mode="drop")
