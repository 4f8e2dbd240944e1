"""Device: drafts of a smaller model with the same vocabulary (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv
2302.01318), one after the other, before the target confirms them in the same dispatch.

Its keys and values lie in the target's pages (`draft_kv.py`).

    positions   0 1 2 3 4 5 6 | 7              draft_lens[slot] = 5: steps without drafts have read 5 and 6 since
                          . .   last token
    first pass            5 6   7              up to 1 + drafts tokens; more such passes where more are missing
    further passes                8  9  10     one draft each

Whatever is drafted, all tokens are the target's own.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.kv.kv_state import ExtraArray
from jaxserve.models.config.model_config import Layer, ModelConfig
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import DRAFT, Params, declare, has_tuples_on
from jaxserve.models.transformer import forward
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_chain import ChainEnd, Guess, draw_drafts, extend_chain
from jaxserve.runner.drafts.draft_kv import draft_kv, draft_meta, kind_without_window
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.packed_rows import pack_rows
from jaxserve.runner.drafts.proposer import DraftRows, Proposer, ReadTokens
from pallas_kernels.paged_attention.batch_meta import AttentionMeta, sequence_positions


@dataclass(frozen=True)
class DraftModel(Proposer):
    """model: the draft. kind: the target's kind of layers in whose first KV group's pages its KV lies. keeps_laws: of
    its drafts, for rejection sampling."""

    model: Settings
    kind: int
    keeps_laws: bool = False

    @classmethod
    def of(cls, target: Settings, draft: ModelConfig, *, keeps_laws: bool = False) -> "DraftModel":
        """Raises ConfigError where this model cannot draft for the target."""
        if draft.vocab_size != target.config.vocab_size:
            raise ConfigError(
                f"{PARAM}: the draft model has a vocabulary of {draft.vocab_size} tokens, the model one of "
                f"{target.config.vocab_size}: drafts must be tokens of the model",
                PARAM,
            )
        return cls(replace(target, config=draft, extra=()), kind_without_window(target.config), keeps_laws)

    @property
    def catches_up(self) -> bool:
        """See `Proposer`."""
        return True

    @property
    def extra_arrays(self) -> tuple[ExtraArray, ...]:
        """See `Proposer`."""
        return (draft_kv(self.model),)

    @property
    def weights(self) -> Params:
        """See `Proposer`."""
        model = self.model
        return declare(model.config, model.mesh, model.dtype, has_tuples=has_tuples_on(model.mesh))

    @cached_property
    def table(self) -> tuple[Layer, ...]:
        """The draft's layers, all in one KV group."""
        return tuple(replace(row, group=0, index_in_group=i) for i, row in enumerate(self.model.config.layer_table))

    @jax.named_scope("draft")
    def read(self, params: Params, state: DeviceState, batch: ReadTokens) -> DeviceState:
        """See `Proposer`. Where tokens before these are missing, these are computed again once the row drafts."""
        state, _ = self._forward(params, state, batch.tokens, batch.positions, batch.metas[self.kind])
        assert state.draft_lens is not None
        lens = state.draft_lens[batch.slots]
        lens = jnp.where(lens >= batch.starts, batch.ends, lens)
        return replace(state, draft_lens=state.draft_lens.at[batch.slots].set(lens))

    @jax.named_scope("draft")
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        draft_lens, history = state.draft_lens, state.history
        assert draft_lens is not None
        assert history is not None
        width, num_rows = 1 + num_drafts, len(rows.slots)
        num = jnp.minimum(rows.room, num_drafts)
        is_row = jnp.arange(num_rows, dtype=jnp.int32) < rows.num_seqs
        meta_of = partial(draft_meta, self.kind, self.model.page_size, rows)

        def read_history(
            state: DeviceState, begin: jax.Array, lens: jax.Array
        ) -> tuple[DeviceState, jax.Array, jax.Array]:
            """The state, the last of `lens` tokens of each row from position `begin` on, and the hidden states."""
            lens = jnp.where(is_row, lens, 0)
            places = begin[:, None] + jnp.arange(width, dtype=jnp.int32)[None]
            tokens = history.at[rows.slots[:, None], places].get(mode="clip")
            meta = meta_of(begin, lens, num_tokens=width * num_rows)
            inputs = pack_rows(tokens, lens), sequence_positions(meta), meta
            state, hidden = self._forward(params, state, *inputs, max_query_len=width)
            last = jnp.maximum(jnp.cumsum(lens, dtype=jnp.int32) - 1, 0)
            token = jnp.take_along_axis(tokens, jnp.maximum(lens - 1, 0)[:, None], axis=1)[:, 0]
            return state, token, hidden[last]

        def is_behind(begin: jax.Array) -> jax.Array:
            return (num > 0) & (rows.starts + 1 - begin > width)

        def catch_up(carry: tuple[DeviceState, jax.Array]) -> tuple[DeviceState, jax.Array]:
            """Rows that are not behind read one token, as they will again."""
            state, begin = carry
            state, _, _ = read_history(state, begin, jnp.where(is_behind(begin), width, 1))
            return state, jnp.where(is_behind(begin), begin + width, begin)

        begin = jnp.minimum(draft_lens[rows.slots], rows.starts)
        state, begin = lax.while_loop(lambda carry: jnp.any(is_behind(carry[1])), catch_up, (state, begin))
        end = jnp.where(num > 0, rows.starts + 1, begin + 1)
        state, token, hidden = read_history(state, begin, end - begin)
        state = replace(state, draft_lens=draft_lens.at[rows.slots].set(end))

        def read(state: DeviceState, token: jax.Array, position: jax.Array) -> tuple[DeviceState, jax.Array]:
            meta = meta_of(position, jnp.ones_like(position), num_tokens=num_rows)
            return self._forward(params, state, token, position, meta)

        def draw(state: DeviceState, hidden: jax.Array, positions: jax.Array, is_wanted: jax.Array) -> Guess:
            return draw_drafts(
                self.model,
                params[DRAFT],
                state.slots,
                hidden,
                rows.sampling,
                positions,
                is_wanted,
                keeps_laws=self.keeps_laws,
            )

        first = draw(state, hidden, end, num > 0)
        chain = ChainEnd(token, end - 1).followed_by(first[0], num > 1)
        numbers = jnp.arange(1, num_drafts, dtype=jnp.int32)
        state, others = extend_chain(read, draw, state, chain, num, numbers)

        def joined(one: jax.Array, more: jax.Array) -> jax.Array:
            return jnp.concatenate([one[:, None], more], axis=1)

        tokens, laws = jax.tree.map(joined, first, others)
        return state, Drafts(tokens, num, laws=laws)

    def _forward(
        self,
        params: Params,
        state: DeviceState,
        tokens: Int32[Array, "T"],
        positions: Int32[Array, "T"],
        meta: AttentionMeta,
        *,
        max_query_len: int | None = None,
    ) -> tuple[DeviceState, Float[Array, "T D"]]:
        """The state with the tokens' KV of the draft model, and its hidden states."""
        config, extra = self.model.config, state.kv.extra
        metas = (meta,) * len(config.kinds)
        ctx = replace(self._context, max_query_len=max_query_len)
        hidden, pool, _ = forward(ctx, config, params[DRAFT], tokens, positions, metas, extra[DRAFT], table=self.table)
        return replace(state, kv=replace(state.kv, extra=extra | {DRAFT: pool})), hidden

    @property
    def _context(self) -> Context:
        return Context(self.model.mesh, self.model.attention_backend, page_layout=self.model.page_layout)
