"""Device: drafts of the model itself with fewer layers (self-speculative decoding: Zhang et al., Draft & Verify, arXiv
2309.08168). Nothing is trained, and no weight or KV is added.

    layer 0   1   2   3   4        skipped: 1, 3
          x ──┐   x ──┐   x ─ head ─ draft
              └───┘   └───┘

Drafts attend to the KV of all earlier tokens, which is exact, and write their own for the layers that run. The target
writes the KV of the same positions anew, in all layers, when it confirms them in the same round.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxserve.core.options.option_mappings import option_error
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.models.attention_metadata import kind_meta, without_drops
from jaxserve.models.config.layer_kind import LayerKind
from jaxserve.models.config.model_config import Layer
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.models.transformer import forward
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_chain import ChainEnd, Guess, draw_drafts, extend_chain
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


@dataclass(frozen=True)
class LayerSkip(Proposer):
    """model: the target. skipped: layers that drafts leave out. keeps_laws: of its drafts, for rejection sampling."""

    model: Settings
    skipped: tuple[int, ...]
    keeps_laws: bool = False

    @classmethod
    def of(cls, target: Settings, skipped: tuple[int, ...], *, keeps_laws: bool = False) -> "LayerSkip":
        """Raises ConfigError where the model has no such layers, or none would be left."""
        num_layers = target.config.num_layers
        if skipped[-1] >= num_layers:
            raise option_error(PARAM, f"skip_layers has {skipped[-1]}, the model's layers are 0 to {num_layers - 1}")
        if len(skipped) == num_layers:
            raise option_error(PARAM, "skip_layers leaves no layer")
        return cls(target, skipped, keeps_laws)

    @cached_property
    def table(self) -> tuple[Layer, ...]:
        """The layers that run."""
        return tuple(row for i, row in enumerate(self.model.config.layer_table) if i not in self.skipped)

    @jax.named_scope("draft")
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        assert state.history is not None
        model = self.model
        ctx = Context(model.mesh, model.attention_backend, page_layout=model.page_layout)

        def read(state: DeviceState, token: jax.Array, position: jax.Array) -> tuple[DeviceState, jax.Array]:
            inputs = token, position, self._metas(rows, position), state.kv.pool
            hidden, pool, _ = forward(ctx, model.config, params, *inputs, table=self.table)
            return replace(state, kv=replace(state.kv, pool=pool)), hidden

        def draw(state: DeviceState, hidden: jax.Array, positions: jax.Array, is_wanted: jax.Array) -> Guess:
            return draw_drafts(
                model, params, state.slots, hidden, rows.sampling, positions, is_wanted, keeps_laws=self.keeps_laws
            )

        num, token = jnp.minimum(rows.room, num_drafts), state.history[rows.slots, rows.starts]
        numbers = jnp.arange(num_drafts, dtype=jnp.int32)
        state, (tokens, laws) = extend_chain(read, draw, state, ChainEnd(token, rows.starts), num, numbers)
        return state, Drafts(tokens, num, laws=laws)

    def _metas(self, rows: DraftRows, positions: Int32[Array, "S"]) -> tuple[AttentionMeta, ...]:
        """Of one token of each row, for each kind of layers. Rows that drop pages do not draft, but are computed."""

        def meta_of(kind: LayerKind, tables: jax.Array, first_pages: jax.Array) -> AttentionMeta:
            kv_lens = positions + 1
            if kind.attention.window is None:
                first_pages, kv_lens = without_drops(first_pages, kv_lens, self.model.page_size)
            return kind_meta(
                tables,
                first_pages,
                cu_q_lens=jnp.arange(len(positions) + 1, dtype=jnp.int32),
                kv_lens=kv_lens,
                num_seqs=rows.num_seqs,
                num_decodes=rows.num_seqs,
                num_tokens=len(positions),
                page_size=self.model.page_size,
            )

        return tuple(map(meta_of, self.model.config.kinds, rows.tables, rows.first_pages))
