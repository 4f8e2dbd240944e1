"""Device: block sizes of the XLA path."""

from pallas_kernels.paged_attention.block_config import BlockSizes, power_of_two


def xla_block_sizes(page_size: int, num_kv_heads: int, head_dim: int) -> BlockSizes:
    """Block sizes for the XLA path, as they are best on a CPU.

    Decode streams pages through float32 temporaries, and is fast only while these stay near the processor and below the
    size from which the allocator takes fresh memory every step: attention of SmolLM2's 30 layers at 128 rows × 256
    positions took 840 ms with all rows at once (51 MB) and 410 ms in blocks of 8 (4 MB) on 2 busy cores. A block costs
    what its longest row does: 64 rows of 40 to 400 positions took 69 to 72 ms in blocks of 8 (2 MB), 74 to 78 in blocks
    of 16, 83 in blocks of 4; rows of one length take the same in 8 and 16. 128 positions beat 64 by a fifth at 1024 of
    context; 256 gains little more, and wastes more on short ones. A chunk of 512 queries took 86 ms in tiles of 128, 94
    in tiles of 64, 101 in tiles of 256.
    """
    positions = max(128, page_size)
    row_bytes = positions * num_kv_heads * 2 * head_dim * 4
    rows = max(2, min(8, 2**22 // row_bytes))  # one row alone would be multiplied in another order than several
    return BlockSizes(positions=positions, rows=power_of_two(rows), queries=128)
