"""Device: `LoraBatch`: the adapter of each token of a batch, and the pages of the adapters."""

from dataclasses import dataclass, field
from typing import Any, no_type_check

import jax
from jaxtyping import Array, Int


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class RowSpans:
    """Rows of several tokens, as in `AttentionMeta`: the tokens of row s are [cu_q_lens[s], cu_q_lens[s + 1]), all of
    one adapter; rows [0, num_decodes) have one token, token t of row t. longest: the most tokens of a row."""

    cu_q_lens: Int[Array, "S1"]
    num_seqs: Int[Array, ""]
    num_decodes: Int[Array, ""]
    longest: int = field(metadata={"static": True})


@jax.tree_util.register_dataclass
@no_type_check
@dataclass(frozen=True)
class LoraBatch:
    """One batch of T tokens. All int32."""

    places: Int[Array, "T"]
    """Of each token's adapter; 0: it has none, like padding."""
    tables: Int[Array, "A B G n"]
    """Pages of the A - 1 places from 1 on: of each rank block and KV group, as `AdapterLayout` lays them out. 0: the
    adapter has nothing there; its rank blocks come first."""
    spans: RowSpans | None = None
    """None: any token may have any adapter, and there are few of them."""
    plan: Any = None
    """The result of `api.plan` for the batch's back end, once for all layers; None: computed in every call."""

    @property
    def num_blocks(self) -> Int[Array, "A"]:
        """Rank blocks of each place."""
        return (self.tables > 0).any((2, 3)).sum(1, dtype="int32")
