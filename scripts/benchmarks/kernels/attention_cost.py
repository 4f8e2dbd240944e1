"""Bytes and operations that a workload of paged attention needs, independent of the implementation."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.workloads import Workload


@dataclass(frozen=True)
class Cost:
    """One call on one layer."""

    kv_bytes: int
    """Whole pages visible to some query of a row, read once for each row (and once for each of its tiles)."""
    other_bytes: int
    """Queries and outputs, and new keys and values, which are read once and written once."""
    ops: int
    """4 · head dim for each query head and visible position: a product for the score, one for the sum."""

    @property
    def bytes(self) -> int:
        return self.kv_bytes + self.other_bytes


def cost(w: Workload, tile_tokens: int | None = None) -> Cost:
    """The cost of one call. tile_tokens: how many tokens of a row share one reading of its pages; None: all."""
    pages = sum(_pages_read(w, q_len, kv_len, tile_tokens) for q_len, kv_len in zip(w.q_lens, w.kv_lens, strict=True))
    itemsize, stored_itemsize = jnp.dtype(w.dtype).itemsize, jnp.dtype(w.stored_dtype).itemsize
    position_bytes = w.num_kv_heads * packed_len(w) * stored_itemsize
    num_tokens = sum(w.q_lens)
    new_bytes = num_tokens * (2 * w.num_kv_heads * w.head_dim * itemsize + position_bytes) if w.write else 0
    q_and_o_bytes = 2 * num_tokens * w.num_heads * w.head_dim * itemsize
    return Cost(
        kv_bytes=pages * w.page_size * position_bytes,
        other_bytes=q_and_o_bytes + new_bytes,
        ops=4 * w.head_dim * w.num_heads * pairs(w),
    )


def pairs(w: Workload) -> int:
    """Query tokens times the positions that each sees; nodes of a draft tree count as a chain's."""
    return sum(int(_seen(w, q_len, kv_len).sum()) for q_len, kv_len in zip(w.q_lens, w.kv_lens, strict=True))


def packed_len(w: Workload) -> int:
    """Numbers of a position and head in the pool, padding included."""
    return LAYOUTS[w.layout].packed_len(w.head_dim, w.stored_dtype)


def _seen(w: Workload, q_len: int, kv_len: int) -> np.ndarray:
    """Positions that each new token of a row sees."""
    seen = np.arange(kv_len - q_len, kv_len) + 1
    return seen if w.window is None else np.minimum(seen, w.window)


def _pages_read(w: Workload, q_len: int, kv_len: int, tile_tokens: int | None) -> int:
    tile = tile_tokens or q_len
    total = 0
    for start in range(0, q_len, tile):
        first_query = kv_len - q_len + start
        end = min(first_query + tile, kv_len)
        begin = 0 if w.window is None else max(first_query - w.window + 1, 0)
        total += -(-end // w.page_size) - begin // w.page_size
    return total
