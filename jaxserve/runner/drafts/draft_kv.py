"""Device: where the KV of a draft lies: next to the pool, in the pages of the target's first KV group without a window.

A page with the target's KV of a position has a place for the draft's.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.kv.kv_state import ExtraArray
from jaxserve.models.attention_metadata import kind_meta
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import num_kv_heads_on
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import DRAFT
from jaxserve.runner.drafts.proposer import DraftRows
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


def kind_without_window(target: ModelConfig) -> int:
    """The target's kind of layers in whose first KV group's pages a draft has its KV. Raises ConfigError if all its
    layers have a window."""
    for k, kind in enumerate(target.kinds):
        if kind.attention.window is None:
            return k
    raise ConfigError(
        f"{PARAM}: all layers of the model have a window, and a draft keeps its KV in the pages of layers without one; "
        'method="ngram" needs none',
        PARAM,
    )


def draft_kv(draft: Settings) -> ExtraArray:
    """KV of all layers of a draft, one after the other."""
    page = draft.page_layout.page_shape(draft.page_size, draft.config.head_dim, draft.dtype)
    heads = num_kv_heads_on(draft.config, draft.mesh)
    return ExtraArray(DRAFT, draft.config.num_layers, (heads, *page), draft.dtype)


def draft_meta(
    kind: int, page_size: int, rows: DraftRows, starts: Int32[Array, "S"], lens: Int32[Array, "S"], *, num_tokens: int
) -> AttentionMeta:
    """Of `lens` tokens of each row from position `starts` on."""
    tables = rows.tables[kind][:1]
    return kind_meta(
        tables,
        jnp.zeros(tables.shape[:2], jnp.int32),
        cu_q_lens=jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lens, dtype=jnp.int32)]),
        kv_lens=starts + lens,
        num_seqs=rows.num_seqs,
        num_decodes=rows.num_seqs if num_tokens == len(lens) else jnp.int32(0),
        num_tokens=num_tokens,
        page_size=page_size,
    )
