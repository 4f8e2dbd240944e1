"""Device: how well Medusa heads guess (Cai et al., arXiv 2401.10774, section 2.2.1): their loss and their ranks.

tokens   a b c d e …        state after b, from which c is drawn: head 0 guesses d, head 1 guesses e, …
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax  # pyright: ignore[reportMissingTypeStubs]
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.functional.forward_steps import forward, logits
from jaxserve.models.config.medusa_heads import MAX_RANKS
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.runner.drafts.medusa import medusa_states

DECAY = 0.8
"""Weight of each head's loss by that of the one before (section 2.2.1)."""


def medusa_loss(
    settings: Settings, params: Params, heads: Params, tokens: Int32[Array, "B T"], is_own: Bool[Array, "B T"]
) -> tuple[Float[Array, ""], Float[Array, "K"]]:
    """The weighted sum of the heads' cross-entropies, in nats, and each of them: to the model's own probabilities of
    that token, which say more than the one that was drawn (a teacher's loss: Ankner et al., Hydra, arXiv 2402.05109).
    is_own: tokens that are learned."""

    def cross_entropy(raw: jax.Array, wanted: jax.Array, _: jax.Array, is_learned: jax.Array) -> jax.Array:
        losses = optax.softmax_cross_entropy(raw, jax.nn.softmax(wanted))
        num_learned = jnp.sum(is_learned, dtype=jnp.float32)
        return jnp.sum(jnp.where(is_learned, losses, 0)) / jnp.maximum(num_learned, 1)

    by_head = _each_head(settings, params, heads, tokens, is_own, cross_entropy)
    weights = DECAY ** jnp.arange(1, len(by_head) + 1, dtype=jnp.float32)
    return jnp.sum(weights * by_head), by_head


def rank_counts(
    settings: Settings, params: Params, heads: Params, tokens: Int32[Array, "B T"], is_own: Bool[Array, "B T"]
) -> tuple[Int32[Array, "K R"], Int32[Array, "K"]]:
    """How often the token was the guess of each rank, R = MAX_RANKS, and of how many tokens."""

    def count(raw: jax.Array, _: jax.Array, targets: jax.Array, is_learned: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = jnp.take_along_axis(raw, targets[:, None], axis=1)
        rank = jnp.sum(raw > own, axis=1)
        counts = jnp.sum((rank[:, None] == jnp.arange(MAX_RANKS)[None]) & is_learned[:, None], axis=0, dtype=jnp.int32)
        return counts, jnp.sum(is_learned, dtype=jnp.int32)

    return _each_head(settings, params, heads, tokens, is_own, count)


def _each_head(
    settings: Settings, params: Params, heads: Params, tokens: jax.Array, is_own: jax.Array, score: Any
) -> Any:
    """score(logits [B·T, V], the model's own of the same token, the token, which of them count) of each head: one
    head's logits exist at a time."""
    hidden, _ = forward(settings, params, tokens)
    hidden = lax.stop_gradient(hidden)
    own = lax.stop_gradient(logits(settings, params, hidden))
    place = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]

    @jax.checkpoint
    def of_head(number: jax.Array, head: Params) -> Any:
        ahead = 2 + number
        wanted, targets = jnp.roll(own, 1 - ahead, axis=1), jnp.roll(tokens, -ahead, axis=1)
        is_learned = jnp.roll(is_own, -ahead, axis=1) & (place < tokens.shape[1] - ahead)
        one: Params = {name: leaf[None].astype(hidden.dtype) for name, leaf in head.items()}
        raw = logits(settings, params, medusa_states(one, hidden.reshape(-1, hidden.shape[2]))[:, 0])
        return score(raw, wanted.reshape(raw.shape), targets.reshape(-1), is_learned.reshape(-1))

    def next_head(_: None, numbered: tuple[jax.Array, Params]) -> tuple[None, Any]:
        return None, of_head(*numbered)

    count = jnp.arange(len(heads["bias"]), dtype=jnp.int32)
    return lax.scan(next_head, None, (count, heads))[1]
