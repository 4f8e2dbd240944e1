"""Device: log-probabilities of chosen tokens and of the k likeliest ones, under the raw logits (temperature 1)."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32

from jaxserve.sampling.argmax_top_k import row_max, top_k
from jaxserve.sampling.probabilities import each_row


@jax.named_scope("logprobs")
def top_logprobs(
    logits: Float[Array, "R V"], chosen: Int32[Array, " R"], num_wanted: Int32[Array, " R"], k: int
) -> tuple[Float[Array, " R"], Int32[Array, " R"], Int32[Array, "R k"], Float[Array, "R k"]]:
    """(log-probability of `chosen`, its rank, the k likeliest ids, their log-probabilities) in each row.

    logits: raw, padding masked (`mask_padding`). A rank is 1 + the number of tokens strictly likelier. num_wanted:
    candidates requested by each row; 0: `chosen` alone, -1: nothing. All results are zeros when no row requests
    anything, the candidates when no row requests any. k: at most the vocabulary size.
    """
    num_rows = len(logits)
    no_candidates = jnp.zeros((num_rows, k), jnp.int32), jnp.zeros((num_rows, k), jnp.float32)

    def compute() -> tuple[Array, Array, Array, Array]:
        top = row_max(logits)
        normalizer = top + jnp.log(jnp.sum(jnp.exp(logits - top[:, None]), axis=1))
        picked = jnp.take_along_axis(logits, chosen[:, None], axis=1, mode="clip")[:, 0]
        num_likelier = each_row(_num_larger, logits, picked)
        ids, candidates = lax.cond(
            jnp.any(num_wanted > 0), lambda: _candidates(logits, normalizer, k), lambda: no_candidates
        )
        return picked - normalizer, 1 + num_likelier, ids, candidates

    return lax.cond(
        jnp.any(num_wanted >= 0),
        compute,
        lambda: (jnp.zeros(num_rows, jnp.float32), jnp.zeros(num_rows, jnp.int32), *no_candidates),
    )


def _num_larger(z: Array, value: Array) -> Array:
    return jnp.sum(z > value, dtype=jnp.int32)


def _candidates(
    logits: Float[Array, "R V"], normalizer: Float[Array, " R"], k: int
) -> tuple[Int32[Array, "R k"], Float[Array, "R k"]]:
    values, ids = top_k(logits, k)
    return ids, values - normalizer[:, None]
