"""Host: block sizes of the paged attention op, and the heuristic that picks them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockSizes:
    """How much a back end handles at once. Results depend on it by rounding only."""

    positions: int = 128
    """KV positions of one step of the online softmax; a multiple of the page size."""
    rows: int = 8
    """Decode rows handled together."""
    queries: int = 64
    """Query tokens of one prefill tile, all of one sequence."""

    def __post_init__(self) -> None:
        for name in ("positions", "rows", "queries"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"BlockSizes: {name}={size} must be a power of two")

    def pages(self, page_size: int) -> int:
        """Pages of one step. Raises ValueError when a page does not fit in it."""
        if self.positions % page_size:
            raise ValueError(
                f"BlockSizes: positions={self.positions} must be a multiple of the page size {page_size}; "
                f"pass block=BlockSizes(positions={page_size}) or another multiple"
            )
        return self.positions // page_size


def default_block_sizes(page_size: int, num_kv_heads: int, head_dim: int) -> BlockSizes:
    """Block sizes for the XLA path on a CPU.

    Decode streams pages through float32 temporaries, and is fast only while these stay near the processor and below the
    size from which the allocator takes fresh memory every step: attention of SmolLM2's 30 layers at 128 rows × 256
    positions took 840 ms with all rows at once (51 MB) and 410 ms in blocks of 8 (4 MB) on 2 busy cores. 64 rows × 256
    positions took 56 to 61 ms in blocks of 16 (3 MB), 65 to 73 in blocks of 8. 128 positions beat 64 by a fifth at 1024
    of context; 256 gains little more, and wastes more on short ones.
    """
    positions = max(128, page_size)
    row_bytes = positions * num_kv_heads * 2 * head_dim * 4
    rows = max(2, min(16, 2**22 // row_bytes))  # one row alone would be multiplied in another order than several
    return BlockSizes(positions=positions, rows=1 << (rows.bit_length() - 1), queries=64)
