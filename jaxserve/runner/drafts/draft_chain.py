"""Device: drafts of a model's forward passes, one after the other, each a token drawn as the target draws its own.

A draft is drawn from the random number of its position: where draft and target agree on the probabilities, they draw
the same token at every temperature. For rejection sampling it is drawn from a number of its own, and its law is kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, vocab_width
from jaxserve.models.transformer import logits
from jaxserve.runner.device_state import DeviceState
from jaxserve.sampling.logit_processors import mask_padding, process_logits
from jaxserve.sampling.probabilities import draw_index
from jaxserve.sampling.row_sharding import shard_rows
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.seeded_random import DRAFT, row_words, uniforms
from jaxserve.sampling.slot_state import SlotState
from jaxserve.sampling.token_law import token_law

# (state, a token of each row, its position) -> (state with the token's KV, hidden states after the tokens)
ReadToken = Callable[[DeviceState, jax.Array, jax.Array], tuple[DeviceState, jax.Array]]
Guess = tuple[Int32[Array, "S *N"], Float[Array, "S *N V"] | None]
"""A token of each row, or N, and the law by which each was drawn, where that is kept."""
# (state, hidden states, positions of the tokens to be drawn, rows that want one) -> guesses
DrawToken = Callable[[DeviceState, jax.Array, jax.Array, jax.Array], Guess]


class ChainEnd(NamedTuple):
    """The token of each row that is read next, and its position."""

    token: Int32[Array, "S"]
    position: Int32[Array, "S"]

    def followed_by(self, draft: Int32[Array, "S"], goes_on: Bool[Array, "S"]) -> "ChainEnd":
        """A row without further drafts reads its token again: it rewrites identical KV."""
        return ChainEnd(jnp.where(goes_on, draft, self.token), self.position + goes_on.astype(jnp.int32))


Carry = tuple[DeviceState, ChainEnd]


def extend_chain(
    read: ReadToken,
    draw: DrawToken,
    state: DeviceState,
    end: ChainEnd,
    num: Int32[Array, "S"],
    numbers: Int32[Array, "N"],
) -> tuple[DeviceState, Guess]:
    """Drafts of these numbers, which follow `end`: N for each row, whose entries from number `num` on are arbitrary.

    One loop reads all tokens, the first one too: of weights with a use outside XLA may make a copy for it.
    """

    def extend(carry: Carry, number: jax.Array) -> tuple[Carry, Guess]:
        state, end = carry
        state, hidden = read(state, *end)
        guess = draw(state, hidden, end.position + 1, number < num)
        return (state, end.followed_by(guess[0], number + 1 < num)), guess

    def by_row(by_number: jax.Array) -> jax.Array:
        return jnp.moveaxis(by_number, 0, 1)

    (state, _), guesses = lax.scan(extend, (state, end), numbers)
    return state, jax.tree.map(by_row, guesses)


def draw_drafts(
    model: Settings,
    params: Params,
    slots: SlotState,
    hidden: Float[Array, "S D"],
    sampling: SamplingBatch,
    positions: Int32[Array, "S"],
    is_wanted: Bool[Array, "S"],
    *,
    keeps_laws: bool,
) -> Guess:
    """Tokens of these positions, drawn from a model's logits as the target would draw; any where none is wanted."""

    def sample(rows: tuple[jax.Array, SamplingBatch, jax.Array], slots: SlotState) -> Guess:
        raw, sampling, positions = rows
        masked = mask_padding(raw, model.config.vocab_size)
        if not keeps_laws:
            return sample_tokens(masked, sampling, positions, slots)[0], None
        law = token_law(process_logits(masked, sampling, positions, slots), sampling)
        return draw_index(law, uniforms(row_words(sampling, positions, DRAFT))[0]), law

    def drawn() -> Guess:
        ctx = Context(model.mesh, model.attention_backend, page_layout=model.page_layout)
        raw = logits(ctx, model.config, params, hidden)
        return shard_rows(model.mesh, sample, (raw, sampling, positions), slots)

    def nothing() -> Guess:
        law = jnp.zeros((len(positions), vocab_width(model.config, model.mesh)), jnp.float32) if keeps_laws else None
        return jnp.zeros_like(positions), law

    return lax.cond(jnp.any(is_wanted), drawn, nothing)
