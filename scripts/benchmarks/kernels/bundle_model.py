"""The number of bundles of one call: the bundles of its inner loops times their iterations for each row or tile."""

from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.inner_loops import Inner

PIECE = 128
"""Partly visible blocks are computed in units of so many positions."""


def call_bundles(inner: Inner, w: Workload, tile_tokens: int) -> float:
    """Bundles of one call that processes a row's queries in tiles of `tile_tokens`, one after the other."""
    compute = inner.passes * inner.compute.bundles
    per_position = compute / inner.positions
    per_block = inner.block_bundles(w.page_size) - compute
    bundles = 0.0
    for q_len, kv_len in zip(w.q_lens, w.kv_lens, strict=True):
        for first in range(kv_len - q_len, kv_len, tile_tokens):
            last = min(first + tile_tokens, kv_len) - 1
            whole, edge, blocks = tile_positions(inner, first, last, w.window)
            bundles += per_position * (whole + inner.edge_cost * edge) + per_block * blocks + inner.row_bundles
    return bundles


def tile_positions(inner: Inner, first: int, last: int, window: int | None) -> tuple[int, int, int]:
    """For the queries [first, last]: positions computed in whole blocks and in partly visible ones, and blocks fetched.

    A kernel without a loop for partly visible blocks computes whole steps. A kernel with one treats a single query's
    last block as partly visible, and with a window also its first block.
    """
    begin = 0 if window is None else max(first - window + 1, 0)
    block = inner.positions
    blocks = last // block - begin // block + 1
    if inner.edge is None:
        return (last // inner.step - begin // inner.step + 1) * inner.step, 0, blocks
    seen_from = 0 if window is None else max(last - window + 1, 0)
    whole_from = begin // block + 1 if window is not None and first == last else -(-seen_from // block)
    whole_to = max(whole_from, (first if first == last else first + 1) // block)
    before = max(0, min(whole_from * block, last + 1) - begin)
    after = max(0, last + 1 - max(whole_to * block, begin))
    edge = sum(-(-part // PIECE) * PIECE for part in (before, after))
    return (whole_to - whole_from) * block, edge, blocks
