"""Host: `pack_site`: the matrices of one site of an adapter, in the order that `AdapterLayout` gives them in pages."""

from collections.abc import Mapping

import numpy as np

from pallas_kernels.lora_matmul.adapter_layout import RANKS, Part, Site

LowRank = tuple[np.ndarray, np.ndarray]
"""a [rank, inputs] and b [outputs, rank] of a part, on one device."""


def pack_site(site: Site, rows_per_page: int, num_blocks: int, matrices: Mapping[str, LowRank]) -> np.ndarray:
    """[num_blocks, pages of the site, rows of a page, W2], float32: all rank blocks; parts without matrices are zero.

    matrices: by the names of parts, of a rank of at most 8 * num_blocks.
    """
    rows = np.zeros((num_blocks, site.num_pages * rows_per_page, site.width), np.float32)
    for part in site.parts:
        if part.name in matrices:
            a, b = matrices[part.name]
            _check(part, a, b, num_blocks)
            for first, columns in ((part.first_a, a), (part.first_b, b.T)):
                blocks = _in_blocks(columns, num_blocks, site.width)
                rows[:, first : first + blocks.shape[1]] = blocks
    return rows.reshape(num_blocks, site.num_pages, rows_per_page, site.width)


def _in_blocks(columns: np.ndarray, num_blocks: int, width: int) -> np.ndarray:
    """[rank, size] as [num_blocks, RANKS times blocks of columns, width], a block's ranks one after the other."""
    rank, size = columns.shape
    padded = np.zeros((num_blocks * RANKS, -(-size // width) * width), np.float32)
    padded[:rank, :size] = columns
    by_block = padded.reshape(num_blocks, RANKS, -1, width).swapaxes(1, 2)
    return by_block.reshape(num_blocks, -1, width)


def _check(part: Part, a: np.ndarray, b: np.ndarray, num_blocks: int) -> None:
    rank = len(a)
    if a.shape != (rank, part.num_inputs) or b.shape != (part.num_outputs, rank) or rank > num_blocks * RANKS:
        raise ValueError(
            f"{part.name}: a {a.shape} and b {b.shape} are no matrices of {part.num_inputs} inputs, {part.num_outputs} "
            f"outputs and a rank of at most {num_blocks * RANKS}"
        )
