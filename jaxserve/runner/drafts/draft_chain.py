"""Device: drafts of a model's forward passes, one after the other, each a token drawn as the target draws its own.

A draft is drawn from the random number of its position: where draft and target agree on the probabilities, they draw
the same token at every temperature.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.models.transformer import logits
from jaxserve.runner.device_state import DeviceState
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.row_sharding import shard_rows
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.slot_state import SlotState

# (state, a token of each row, its position) -> (state with the token's KV, hidden states after the tokens)
ReadToken = Callable[[DeviceState, jax.Array, jax.Array], tuple[DeviceState, jax.Array]]
# (state, hidden states, positions of the tokens to be drawn, rows that want one) -> tokens
DrawToken = Callable[[DeviceState, jax.Array, jax.Array, jax.Array], jax.Array]


class ChainStart(NamedTuple):
    """token, position: what a row has read last. draft: its first draft, after that. num: drafts of the row."""

    token: Int32[Array, "S"]
    position: Int32[Array, "S"]
    draft: Int32[Array, "S"]
    num: Int32[Array, "S"]


def extend_chain(
    read: ReadToken, draw: DrawToken, state: DeviceState, start: ChainStart, num_drafts: int
) -> tuple[DeviceState, Int32[Array, "S N"]]:
    """The rows' first drafts and those after them, N = num_drafts; entries from a row's `num` on are arbitrary."""

    def extend(
        carry: tuple[DeviceState, ChainStart], depth: jax.Array
    ) -> tuple[tuple[DeviceState, ChainStart], jax.Array]:
        state, (token, position, draft, num) = carry
        # A row without further drafts reads its last token again: it rewrites identical KV.
        goes_on = depth < num
        token = jnp.where(goes_on, draft, token)
        position = position + goes_on.astype(jnp.int32)
        state, hidden = read(state, token, position)
        draft = jnp.where(goes_on, draw(state, hidden, position + 1, goes_on), draft)
        return (state, ChainStart(token, position, draft, num)), draft

    (state, _), others = lax.scan(extend, (state, start), jnp.arange(1, num_drafts, dtype=jnp.int32))
    return state, jnp.concatenate([start.draft[None], others]).T


def draw_drafts(
    model: Settings,
    params: Params,
    slots: SlotState,
    hidden: Float[Array, "S D"],
    sampling: SamplingBatch,
    positions: Int32[Array, "S"],
    is_wanted: Bool[Array, "S"],
) -> Int32[Array, "S"]:
    """Tokens of these positions, drawn from a model's logits as the target would draw; any where none is wanted."""

    def sample(rows: tuple[jax.Array, SamplingBatch, jax.Array], slots: SlotState) -> jax.Array:
        raw, sampling, positions = rows
        return sample_tokens(mask_padding(raw, model.config.vocab_size), sampling, positions, slots)[0]

    def drawn() -> jax.Array:
        ctx = Context(model.mesh, model.attention_backend, page_layout=model.page_layout)
        raw = logits(ctx, model.config, params, hidden)
        return shard_rows(model.mesh, sample, (raw, sampling, positions), slots)

    return lax.cond(jnp.any(is_wanted), drawn, lambda: jnp.zeros_like(positions))
