"""Device: `AttentionSpec` and `ModelSizes`: the arguments of paged attention that are fixed when it is compiled."""

from dataclasses import dataclass
from typing import Any

from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.block_sizes import BlockSizes


@dataclass(frozen=True)
class AttentionSpec:
    """What one layer's attention computes, and how. Hashable; one spec serves every layer with these values.

    Raises:
      ValueError: `window` or `softcap` is out of range.
    """

    scale: float
    """Factor of q·k, applied before `softcap`."""
    window: int | None = None
    """A token at position p attends to the positions (p - window, p]; None: to all positions up to p."""
    softcap: float | None = None
    """Scores s become softcap · tanh(s / softcap); None turns this off."""
    write: bool = True
    """False attends over what is already stored (layers that share another layer's KV); k and v are None then."""
    layout: PageLayout = ROWS
    """How the pool's pages are laid out: ROWS or LANES."""
    backend: str = "auto"
    """One of `dispatch.BACKENDS`."""
    block: BlockSizes | None = None
    """Block sizes of the back end; None selects measured sizes, or those of the back end's rule."""
    max_query_len: int | None = None
    """No row has more tokens, and all are short (`xla/short_rows.py`); None: rows may be long. Kernels ignore it."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window={self.window} must be at least 1: a token sees itself")
        if self.softcap is not None and self.softcap <= 0:
            raise ValueError(f"softcap={self.softcap} must be positive; None turns it off")


@dataclass(frozen=True)
class ModelSizes:
    """Sizes and types of a model's attention on one device: what `api.plan` and the block sizes depend on."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    dtype: Any
    """Of queries."""
    pool_dtype: Any

    @classmethod
    def of(cls, q: Any, pool: Any, layout: PageLayout) -> "ModelSizes":
        """Those of queries [T, N, H] and a pool in this layout."""
        _, num_heads, head_dim = q.shape
        return cls(num_heads, pool.shape[2], head_dim, layout.page_size(pool), q.dtype, pool.dtype)

    @property
    def group_size(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads
