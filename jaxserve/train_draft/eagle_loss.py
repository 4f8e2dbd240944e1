"""Device: how well an EAGLE-3 draft guesses, also from its own outputs ("training-time test": Li et al., arXiv
2503.01840, section 3.2).

    depth 0   each token is read with the feature before it, as after a round of the model
    depth d   with the draft's output before it, of depth d - 1: it is the d-th draft of a chain

A token at position p of depth d attends to the keys of depth 0 up to position p - d, which the model has confirmed, and
to those of its own chain: of depth 1 at p - d + 1, of depth 2 at p - d + 2, and so on.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # pyright: ignore[reportMissingTypeStubs]
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.functional.forward_steps import forward, logits
from jaxserve.models import eagle_layer
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.medusa_heads import MAX_RANKS
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.param_spec import ParamSpec
from jaxserve.models.params import Params
from jaxserve.models.transformer import embed
from jaxserve.models.transformer import logits as head_logits
from jaxserve.train_draft.learned_vocabulary import head_rows, with_vocabulary

DECAY = 0.8
"""Weight of the loss of each depth by that of the one before."""


class Seen(NamedTuple):
    """What the model makes of texts: its states after the final norm, and the inputs of the layers that the draft
    reads."""

    hidden: Float[Array, "B T D"]
    taps: Float[Array, "A BT D"]


@dataclass(frozen=True, eq=False)
class EagleGuesses:
    """What a draft guesses in texts of its target. vocabulary: int32[Vd], the target's token of each of the draft's.
    depth: of how many tokens, one after the other."""

    settings: Settings
    config: EagleConfig
    vocabulary: np.ndarray
    depth: int

    def loss(
        self, draft: Params, params: Params, tokens: Int32[Array, "B T"], is_own: Bool[Array, "B T"]
    ) -> tuple[Float[Array, ""], Float[Array, "depth"]]:
        """The weighted sum of cross-entropies of all depths, in nats, and each of them: to the target's probabilities
        of the draft's vocabulary, where that has the token which follows. draft: its weights without the vocabulary.
        params: the target's. is_own: tokens that are learned."""
        hidden, taps = self._seen(params, tokens)
        # Of the whole vocabulary logits would take an eighth of a step of SmolLM2.
        head: Params = {"lm_head": head_rows(self.settings, params, self.vocabulary)}
        raw = logits(with_vocabulary(self.settings, self.vocabulary), head, hidden)
        wanted = lax.stop_gradient(jax.nn.softmax(raw))
        is_token = jnp.zeros(self.settings.config.vocab_size, jnp.bool_).at[jnp.asarray(self.vocabulary)].set(True)
        is_known = is_token[jnp.roll(tokens, -1, axis=1)]

        @jax.checkpoint
        def cross_entropy(draft: Params, outputs: jax.Array, is_learned: jax.Array) -> jax.Array:
            losses = optax.softmax_cross_entropy(self._draft_logits(draft, outputs), wanted)
            return jnp.sum(jnp.where(is_learned, losses, 0)) / jnp.maximum(jnp.sum(is_learned, dtype=jnp.float32), 1)

        by_depth = jnp.stack(
            [
                cross_entropy(draft, outputs, is_known & _is_guessed(is_own, number))
                for number, outputs in enumerate(self.unrolled(draft, params, tokens, taps))
            ]
        )
        return jnp.sum(DECAY ** jnp.arange(self.depth, dtype=jnp.float32) * by_depth), by_depth

    def rank_counts(
        self, draft: Params, params: Params, tokens: Int32[Array, "B T"], is_own: Bool[Array, "B T"]
    ) -> tuple[Int32[Array, "depth R"], Int32[Array, "depth"]]:
        """How often the next token was the guess of each rank, R = MAX_RANKS, and of how many tokens."""
        taps, following = self._seen(params, tokens).taps, jnp.roll(tokens, -1, axis=1)
        counts, totals = list[jax.Array](), list[jax.Array]()
        for number, outputs in enumerate(self.unrolled(draft, params, tokens, taps)):
            raw, is_counted = self._draft_logits(draft, outputs), _is_guessed(is_own, number)
            _, ranked = lax.top_k(raw, min(MAX_RANKS, raw.shape[2]))
            is_right = (jnp.asarray(self.vocabulary)[ranked] == following[..., None]) & is_counted[..., None]
            found = jnp.sum(is_right, axis=(0, 1), dtype=jnp.int32)
            counts.append(jnp.pad(found, (0, MAX_RANKS - len(found))))
            totals.append(jnp.sum(is_counted, dtype=jnp.int32))
        return jnp.stack(counts), jnp.stack(totals)

    def unrolled(
        self, draft: Params, params: Params, tokens: Int32[Array, "B T"], taps: Float[Array, "A BT D"]
    ) -> list[Float[Array, "B T D"]]:
        """The draft's outputs after each token, of each depth, computed in the target's dtype."""
        settings, shape = self.settings, tokens.shape
        ctx, draft = Context(settings.mesh, settings.attention_backend), self._in_dtype(draft)
        embedded = lax.stop_gradient(embed(settings.config, params, tokens.reshape(-1)))
        positions = jnp.tile(jnp.arange(shape[1], dtype=jnp.int32), shape[0])
        outputs = eagle_layer.fuse(draft, taps)
        keys, values, found = list[jax.Array](), list[jax.Array](), list[jax.Array]()
        for _ in range(self.depth):
            features = _shifted(outputs.reshape(*shape, -1), 1).reshape(outputs.shape)
            q, k, v = eagle_layer.project(self.config, draft, embedded, features, positions)
            keys.append(k.reshape(*shape, *k.shape[1:]))
            values.append(v.reshape(*shape, *v.shape[1:]))
            o = chain_attention(q.reshape(*shape, *q.shape[1:]), keys, values)
            outputs = eagle_layer.after_attention(ctx, self.config, draft, features, o.reshape(q.shape))
            found.append(outputs.reshape(*shape, -1))
        return found

    def _seen(self, params: Params, tokens: jax.Array) -> Seen:
        hidden, taps = forward(self.settings, params, tokens, layers=self.config.taps_of(self.settings.config))
        return lax.stop_gradient(Seen(hidden, taps.reshape(len(taps), -1, taps.shape[-1])))

    def _draft_logits(self, draft: Params, outputs: jax.Array) -> jax.Array:
        """[B, T, Vd]"""
        draft, flat = self._in_dtype(draft), outputs.reshape(-1, outputs.shape[2])
        ctx = Context(self.settings.mesh, self.settings.attention_backend)
        raw = head_logits(ctx, self.config.model, draft, eagle_layer.before_head(self.config, draft, flat))
        return raw[:, : self.config.model.vocab_size].reshape(*outputs.shape[:2], -1)

    def _in_dtype(self, draft: Params) -> Params:
        """The weights as an engine has them."""
        settings = self.settings
        specs = eagle_layer.declare_eagle(self.config, settings.config.d_model, settings.mesh, settings.dtype)
        del specs["tokens"]

        def cast(leaf: jax.Array, spec: ParamSpec) -> jax.Array:
            return leaf.astype(spec.dtype)

        return jax.tree.map(cast, draft, specs)


def chain_attention(
    q: Float[Array, "B T N H"], keys: list[Float[Array, "B T K H"]], values: list[Float[Array, "B T K H"]]
) -> Float[Array, "B T N H"]:
    """Attention of the last depth's queries. keys, values: of all depths."""
    depth, (num_tokens, num_heads, head_dim) = len(keys) - 1, q.shape[1:]
    num_kv_heads = keys[0].shape[2]
    queries = q.reshape(*q.shape[:2], num_kv_heads, num_heads // num_kv_heads, head_dim) * head_dim**-0.5
    query, key = jnp.arange(num_tokens)[:, None], jnp.arange(num_tokens)[None]
    scores = jnp.einsum("btkgh,bskh->bkgts", queries, keys[0], preferred_element_type=jnp.float32)
    scores = jnp.where((key <= query - depth)[None, None, None], scores, -1e30)
    chain_keys, chain_values = (
        jnp.stack([_shifted(of_depth[j], depth - j) for j in range(1, depth + 1)], axis=2) if depth else None
        for of_depth in (keys, values)
    )
    if chain_keys is None or chain_values is None:
        weights = jax.nn.softmax(scores).astype(q.dtype)
        return jnp.einsum("bkgts,bskh->btkgh", weights, values[0]).reshape(q.shape)
    own = jnp.einsum("btkgh,btckh->bkgtc", queries, chain_keys, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(jnp.concatenate([scores, own], axis=-1)).astype(q.dtype)
    confirmed = jnp.einsum("bkgts,bskh->btkgh", weights[..., :num_tokens], values[0])
    drafted = jnp.einsum("bkgtc,btckh->btkgh", weights[..., num_tokens:], chain_values)
    return (confirmed + drafted).reshape(q.shape)


def _is_guessed(is_own: Bool[Array, "B T"], depth: int) -> Bool[Array, "B T"]:
    """Tokens after which the next one is learned at a depth."""
    place = jnp.arange(is_own.shape[1])[None]
    return jnp.roll(is_own, -1, axis=1) & (place >= depth) & (place < is_own.shape[1] - 1)


def _shifted(x: jax.Array, count: int) -> jax.Array:
    """What lies `count` tokens before each; zeros before the first."""
    return jnp.pad(x, ((0, 0), (count, 0), *[(0, 0)] * (x.ndim - 2)))[:, : x.shape[1]]
