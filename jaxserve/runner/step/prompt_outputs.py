"""Device: prompt outputs on request: log-probabilities of prompt tokens, and pooled hidden states.

Both are conditional: a batch that requests neither does not compute them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxserve.core.row_layout import POOLING
from jaxserve.runner.step.device_batch import DeviceBatch
from jaxserve.runner.step.step_output import DeviceLogprobs, no_logprobs, pack_logprobs

TILE = 64  # tokens whose logits exist at once: never [T, V]


@jax.named_scope("prompt_logprobs")
def prompt_logprobs(
    score: Callable[..., DeviceLogprobs], batch: DeviceBatch, hidden: Float[Array, "T D"], k: int
) -> Int32[Array, "O2"]:
    """Log-probability of each requested target after the token before it, with up to k candidates.

    score: maps hidden states [R, D], targets [R] and requested candidates [R] to the result of `top_logprobs`. The
    requested tokens are gathered first, so only the tiles that they fill are computed, wherever they are in the batch.
    """
    all_targets = batch.targets
    assert all_targets is not None
    num_tokens = len(all_targets)
    tile = min(TILE, num_tokens)
    size = -(-num_tokens // tile) * tile
    is_wanted = all_targets >= 0
    (places,) = jnp.nonzero(is_wanted, size=size, fill_value=0)
    num_wanted = jnp.sum(is_wanted, dtype=jnp.int32)
    num_candidates = batch.sampling.num_prompt_logprobs[batch.token_rows]

    def add_tile(i: jax.Array, out: DeviceLogprobs) -> DeviceLogprobs:
        at = lax.dynamic_slice(places, (i * tile,), (tile,))
        is_padding = i * tile + jnp.arange(tile) >= num_wanted
        targets = jnp.where(is_padding, 0, all_targets[at])
        num_tile_candidates = jnp.where(is_padding, -1, num_candidates[at])
        parts = score(hidden[at], targets, num_tile_candidates)

        def put(all_tiles: jax.Array, one: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(all_tiles, one, i * tile, 0)

        return jax.tree.map(put, out, parts)

    return pack_logprobs(lax.fori_loop(0, -(-num_wanted // tile), add_tile, no_logprobs(size, k)))


@jax.named_scope("pooled")
def pooled_states(batch: DeviceBatch, hidden: Float[Array, "T D"]) -> Float[Array, "S D"]:
    """float32: of rows with mean pooling the sum over their tokens of this step, of other rows the last token's state.

    A segment sum, not a product with a 0/1 matrix: a row that is not finite must not affect another row.
    """
    num_rows = len(batch.slots)
    modes = batch.sampling.pooling

    def compute() -> jax.Array:
        states = hidden.astype(jnp.float32)
        rows = jnp.where(batch.is_token, batch.token_rows, num_rows)  # padding is dropped
        sums = jax.ops.segment_sum(states, rows, num_rows, indices_are_sorted=True)
        return jnp.where(modes[:, None] == POOLING["mean"], sums, states[batch.heads.tokens])

    return lax.cond(jnp.any(modes > 0), compute, lambda: jnp.zeros((num_rows, hidden.shape[1]), jnp.float32))
