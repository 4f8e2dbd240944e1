"""Device: log-probabilities of chosen tokens and of the likeliest ones, under the raw logits (temperature 1)."""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.topk import row_max, top_k
from jaxserve.sampling.weights import each_row


def top_logprobs(
    logits: Float[Array, "R V"], chosen: Int32[Array, " R"], is_wanted: Bool[Array, " R"], k: int
) -> tuple[Float[Array, " R"], Int32[Array, " R"], Int32[Array, "R k"], Float[Array, "R k"]]:
    """(log-probability of `chosen`, its rank, the k likeliest ids, their log-probabilities) in each row.

    logits: raw, padding masked (`processors.mask_padding`). A rank is 1 + the number of tokens strictly likelier. All
    zeros when no row wants them. k is static, at most the vocabulary's size.
    """

    def compute() -> tuple[Array, Array, Array, Array]:
        top = row_max(logits)
        normaliser = top + jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1))
        picked = jnp.take_along_axis(logits, chosen[:, None], axis=1, mode="clip")[:, 0]
        num_likelier = each_row(lambda z, z_chosen: jnp.sum(z > z_chosen, dtype=jnp.int32), logits, picked)
        values, ids = top_k(logits, k)
        return picked - normaliser, 1 + num_likelier, ids, values - normaliser[:, None]

    num_rows = len(logits)
    return lax.cond(
        jnp.any(is_wanted),
        compute,
        lambda: (
            jnp.zeros(num_rows, jnp.float32),
            jnp.zeros(num_rows, jnp.int32),
            jnp.zeros((num_rows, k), jnp.int32),
            jnp.zeros((num_rows, k), jnp.float32),
        ),
    )
