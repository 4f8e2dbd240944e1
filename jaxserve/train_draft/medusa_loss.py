"""Device: how well Medusa heads guess (Cai et al., arXiv 2401.10774, section 2.2.1): their loss and their ranks.

tokens   a b c d e …        state after b, from which c is drawn: head 0 guesses d, head 1 guesses e, …
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # pyright: ignore[reportMissingTypeStubs]
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.functional.forward_steps import logits
from jaxserve.models.config.medusa_heads import MAX_RANKS
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.runner.drafts.medusa import medusa_states
from jaxserve.train_draft.learned_vocabulary import head_rows, with_vocabulary

DECAY = 0.8
"""Weight of each head's loss by that of the one before (section 2.2.1)."""


@dataclass(frozen=True, eq=False)
class MedusaGuesses:
    """What heads guess in texts of their model. vocabulary: int32[Vd], the tokens that are learned."""

    settings: Settings
    vocabulary: np.ndarray

    def loss(
        self,
        heads: Params,
        params: Params,
        tokens: Int32[Array, "B T"],
        is_own: Bool[Array, "B T"],
        hidden: Float[Array, "B T D"],
    ) -> tuple[Float[Array, ""], Float[Array, "K"]]:
        """The weighted sum of the heads' cross-entropies, in nats, and each of them: to the model's own probabilities
        of that token, which say more than the one that was drawn (a teacher's loss: Ankner et al., Hydra, arXiv
        2402.05109). is_own: tokens that are learned. hidden: of the model, from which the next token is drawn."""
        settings = with_vocabulary(self.settings, self.vocabulary)
        head: Params = {"lm_head": head_rows(self.settings, params, self.vocabulary)}
        own = lax.stop_gradient(logits(settings, head, hidden))

        def cross_entropy(raw: jax.Array, ahead: jax.Array, is_learned: jax.Array) -> jax.Array:
            wanted = jax.nn.softmax(jnp.roll(own, 1 - ahead, axis=1))
            losses = jnp.where(is_learned, optax.softmax_cross_entropy(raw, wanted), 0)
            return jnp.sum(losses) / jnp.maximum(jnp.sum(is_learned, dtype=jnp.float32), 1)

        by_head = _each_head(settings, head, heads, is_own, hidden, cross_entropy)
        weights = DECAY ** jnp.arange(1, len(by_head) + 1, dtype=jnp.float32)
        return jnp.sum(weights * by_head), by_head

    def rank_counts(
        self,
        heads: Params,
        params: Params,
        tokens: Int32[Array, "B T"],
        is_own: Bool[Array, "B T"],
        hidden: Float[Array, "B T D"],
    ) -> tuple[Int32[Array, "K R"], Int32[Array, "K"]]:
        """How often the token was the guess of each rank, R = MAX_RANKS, and of how many tokens."""

        def count(raw: jax.Array, ahead: jax.Array, is_learned: jax.Array) -> tuple[jax.Array, jax.Array]:
            targets = jnp.roll(tokens, -ahead, axis=1)
            own = jnp.take_along_axis(raw, targets[..., None], axis=2)
            is_rank = jnp.sum(raw > own, axis=2)[..., None] == jnp.arange(MAX_RANKS)
            counts = jnp.sum(is_rank & is_learned[..., None], axis=(0, 1), dtype=jnp.int32)
            return counts, jnp.sum(is_learned, dtype=jnp.int32)

        return _each_head(self.settings, params, heads, is_own, hidden, count)


def _each_head(
    settings: Settings, params: Params, heads: Params, is_own: jax.Array, hidden: jax.Array, score: Any
) -> Any:
    """score(logits [B, T, V], how many tokens ahead, which of them count) of each head: one head's logits exist at a
    time."""
    place = jnp.arange(is_own.shape[1], dtype=jnp.int32)[None]

    @jax.checkpoint
    def of_head(number: jax.Array, head: Params) -> Any:
        ahead = 2 + number
        is_learned = jnp.roll(is_own, -ahead, axis=1) & (place < is_own.shape[1] - ahead)
        one: Params = {name: leaf[None].astype(hidden.dtype) for name, leaf in head.items()}
        raw = logits(settings, params, medusa_states(one, hidden.reshape(-1, hidden.shape[2]))[:, 0])
        return score(raw.reshape(*is_own.shape, -1), ahead, is_learned)

    def next_head(_: None, numbered: tuple[jax.Array, Params]) -> tuple[None, Any]:
        return None, of_head(*numbered)

    count = jnp.arange(len(heads["bias"]), dtype=jnp.int32)
    return lax.scan(next_head, None, (count, heads))[1]
