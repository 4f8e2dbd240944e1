"""Device: log-probabilities of chosen tokens and of the likeliest ones, under the raw logits (temperature 1)."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxserve.sampling.largest import row_max, top_k
from jaxserve.sampling.probabilities import each_row


@jax.named_scope("logprobs")
def top_logprobs(
    logits: Float[Array, "R V"], chosen: Int32[Array, " R"], num_wanted: Int32[Array, " R"], k: int
) -> tuple[Float[Array, " R"], Int32[Array, " R"], Int32[Array, "R k"], Float[Array, "R k"]]:
    """(log-probability of `chosen`, its rank, the k likeliest ids, their log-probabilities) in each row.

    logits: raw, padding masked (`processors.mask_padding`). A rank is 1 + the number of tokens strictly likelier.
    num_wanted: the candidates that each row wants; 0 for `chosen` alone, -1 for nothing. All zeros when no row wants
    anything; zeros for the candidates when no row wants any. k is static, at most the vocabulary's size.
    """
    num_rows = len(logits)
    no_candidates = jnp.zeros((num_rows, k), jnp.int32), jnp.zeros((num_rows, k), jnp.float32)

    def compute() -> tuple[Array, Array, Array, Array]:
        top = row_max(logits)
        normaliser = top + jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1))
        picked = jnp.take_along_axis(logits, chosen[:, None], axis=1, mode="clip")[:, 0]
        num_likelier = each_row(lambda z, z_chosen: jnp.sum(z > z_chosen, dtype=jnp.int32), logits, picked)
        ids, candidates = lax.cond(
            jnp.any(num_wanted > 0), lambda: _candidates(logits, normaliser, k), lambda: no_candidates
        )
        return picked - normaliser, 1 + num_likelier, ids, candidates

    return lax.cond(
        jnp.any(num_wanted >= 0),
        compute,
        lambda: (jnp.zeros(num_rows, jnp.float32), jnp.zeros(num_rows, jnp.int32), *no_candidates),
    )


def _candidates(
    logits: Float[Array, "R V"], normaliser: Float[Array, " R"], k: int
) -> tuple[Int32[Array, "R k"], Float[Array, "R k"]]:
    values, ids = top_k(logits, k)
    return ids, values - normaliser[:, None]
