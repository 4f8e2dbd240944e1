"""Device: drafts of an EAGLE-3 draft (Li et al., arXiv 2503.01840; the layer is described in `models/eagle_layer.py`).

    positions      4     5     6     7     8     9
    token          a     b     c     d     e     f        d: drawn last, e and f: drafts, the likeliest of each output
    reads with     f(3)  f(4)  f(5)  f(6)  o(7)  o(8)     f: features of the target's states, o: the draft's own outputs

Steps of every kind write the KV of what they read, with true features: that of rejected drafts, and of accepted ones
that were read with outputs of the draft, is overwritten. So a row may draft at any time. `state.features` has the
feature of the last token that each slot has read.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.kv.kv_state import ExtraArray
from jaxserve.models import eagle_layer
from jaxserve.models.attention import write_kv
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import DRAFT, Params
from jaxserve.models.transformer import embed, logits
from jaxserve.runner.device_state import DeviceState, features_before
from jaxserve.runner.drafts.draft_kv import draft_kv, draft_meta, kind_without_window
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer, TappedTokens
from jaxserve.sampling.argmax_top_k import argmax
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.row_sharding import shard_rows
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


class DraftTokens(NamedTuple):
    """Tokens that the draft reads, their positions and the features before them."""

    tokens: Int32[Array, "T"]
    positions: Int32[Array, "T"]
    features: Float[Array, "T D"]


Carry = tuple[DeviceState, DraftTokens]


@dataclass(frozen=True)
class Eagle(Proposer):
    """target: the model. model: the draft. kind: the target's kind of layers in whose pages the draft's KV lies."""

    target: Settings
    model: Settings
    config: EagleConfig
    kind: int

    @classmethod
    def of(cls, target: Settings, config: EagleConfig) -> "Eagle":
        """Raises ConfigError where the draft is of another model."""
        own = target.config
        for name, value, expected in (
            ("a hidden size", config.model.d_model, own.d_model),
            ("a target vocabulary", config.vocab_size, own.vocab_size),
        ):
            if value != expected:
                raise ConfigError(
                    f"{PARAM}: the EAGLE draft has {name} of {value}, the model has {expected}: it is of another model",
                    PARAM,
                )
        taps = config.taps_of(own)
        if not all(0 <= layer < own.num_layers for layer in taps) or len(set(taps)) < len(taps):
            raise ConfigError(
                f"{PARAM}: the EAGLE draft reads layers {', '.join(map(str, taps))} of the model, which must be "
                f"different ones of its {own.num_layers}",
                PARAM,
            )
        return cls(target, replace(target, config=config.model, extra=()), config, kind_without_window(own))

    @property
    def extra_arrays(self) -> tuple[ExtraArray, ...]:
        """See `Proposer`."""
        return (draft_kv(self.model),)

    @property
    def weights(self) -> Params:
        """See `Proposer`."""
        mesh, dtype = self.model.mesh, self.model.dtype
        width = self.target.config.d_model
        return eagle_layer.declare_eagle(self.config, width, mesh, dtype)

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """See `Proposer`."""
        return self.config.taps_of(self.target.config)

    @property
    def num_features(self) -> int:
        """See `Proposer`."""
        return self.model.config.d_model

    @jax.named_scope("draft")
    def read_taps(
        self, params: Params, state: DeviceState, batch: TappedTokens
    ) -> tuple[DeviceState, Float[Array, "T F"]]:
        """See `Proposer`."""
        own = params[DRAFT]
        features, slots = eagle_layer.fuse(own, batch.taps), batch.write_slots[self.kind][0]
        before = jnp.where((batch.previous < 0)[:, None], batch.before[batch.rows], features[batch.previous])
        embedded = embed(self.target.config, params, batch.tokens)
        _, k, v = eagle_layer.project(self.config, own, embedded, before, batch.positions)
        pool = write_kv(self._context(), k, v, state.kv.extra[DRAFT], jnp.int32(0), slots, batch.end)
        return _with_pool(state, pool), features

    @jax.named_scope("draft")
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        num = jnp.minimum(rows.room, num_drafts)

        def read_and_guess(carry: Carry, depth: jax.Array) -> tuple[Carry, jax.Array]:
            state, last = carry
            state, output = self.read_one(params, rows, state, last)
            draft = self._guess(params, output)
            # A row without further drafts reads its last token again: it rewrites identical KV.
            goes_on = depth + 1 < num
            following = DraftTokens(
                jnp.where(goes_on, draft, last.tokens),
                last.positions + goes_on.astype(jnp.int32),
                jnp.where(goes_on[:, None], output, last.features),
            )
            return (state, following), draft

        # The first read is in the loop, too: weights with a use before it are copied for it (v6e, in `lax.cond`).
        depths = jnp.arange(num_drafts, dtype=jnp.int32)
        (state, _), drafts = lax.scan(read_and_guess, (state, self.first(state, rows)), depths)
        return state, Drafts(drafts.T, num)

    def first(self, state: DeviceState, rows: DraftRows) -> DraftTokens:
        """What each row reads first: its last token."""
        assert state.history is not None
        features = features_before(state, rows.slots, rows.starts)
        return DraftTokens(state.history[rows.slots, rows.starts], rows.starts, features)

    def read_one(
        self, params: Params, rows: DraftRows, state: DeviceState, read: DraftTokens
    ) -> tuple[DeviceState, Float[Array, "S D"]]:
        """The state with the KV of one token of each row, and the outputs after these."""
        one = jnp.ones_like(read.positions)
        meta = draft_meta(self.kind, self.model.page_size, rows, read.positions, one, num_tokens=len(one))
        return self.run(params, state, read, meta)

    def run(
        self,
        params: Params,
        state: DeviceState,
        read: DraftTokens,
        meta: AttentionMeta,
        *,
        max_query_len: int | None = None,
    ) -> tuple[DeviceState, Float[Array, "T D"]]:
        """The state with the tokens' KV, and the draft's outputs after them."""
        ctx, pool = replace(self._context(), max_query_len=max_query_len), state.kv.extra[DRAFT]
        embedded = embed(self.target.config, params, read.tokens)
        inputs = embedded, read.features, read.positions, meta, pool
        outputs, pool = eagle_layer.run_eagle(ctx, self.config, params[DRAFT], *inputs)
        return _with_pool(state, pool), outputs

    def draft_logits(self, params: Params, outputs: Float[Array, "T D"]) -> Float[Array, "T V"]:
        """Logits of the draft's own vocabulary, padding included."""
        own = params[DRAFT]
        return logits(self._context(), self.config.model, own, eagle_layer.before_head(self.config, own, outputs))

    def _guess(self, params: Params, outputs: Float[Array, "S D"]) -> Int32[Array, "S"]:
        """The likeliest token after each output."""

        def likeliest(raw: jax.Array) -> jax.Array:
            return argmax(mask_padding(raw, self.config.model.vocab_size))

        return params[DRAFT]["tokens"][shard_rows(self.model.mesh, likeliest, self.draft_logits(params, outputs))]

    def _context(self) -> Context:
        return Context(self.model.mesh, self.model.attention_backend, page_layout=self.model.page_layout)


def _with_pool(state: DeviceState, pool: jax.Array) -> DeviceState:
    return replace(state, kv=replace(state.kv, extra=state.kv.extra | {DRAFT: pool}))
