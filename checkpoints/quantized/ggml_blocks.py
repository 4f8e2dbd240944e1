"""Host: `GgmlBlocks`: rows rounded to blocks of 32 values with a scale, in the bytes of GGUF's types Q8_0 and Q4_0.

    Q8_0    d = max |w| / 127            code = w / d, rounded to the nearest, halves away from zero
    Q4_0    d = the largest w / -8       code = w / d + 8.5 without its fraction, at most 15

The largest w is that of the largest magnitude, the first of equals, so that it has the code 0. Codes are computed with
d in float32, and d is stored as float16. The formulas are those of ggml's reference quantization (ggml-quants.c,
quantize_row_q8_0_ref and quantize_row_q4_0_ref).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from checkpoints.quantized.quantized_weight import Misfit

BLOCK_LEN = 32
LARGEST_SCALE = 65504.0  # of float16


@dataclass(frozen=True, slots=True)
class GgmlBlocks:
    """name: of the type. layout: of a block's bytes. encoded: (scales [n, 1], codes as in layout) of blocks [n, 32]."""

    name: str
    layout: np.dtype[np.void]
    encoded: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def num_bytes(self, num_values: int) -> int:
        """Of a multiple of 32 values."""
        return num_values // BLOCK_LEN * self.layout.itemsize

    def encode(self, rows: Float[np.ndarray, "N I"]) -> UInt8[np.ndarray, "N bytes"]:
        """Bytes of float32 rows, whose length is a multiple of 32. Raises `Misfit` for a scale beyond float16."""
        scales, codes = self.encoded(rows.reshape(-1, BLOCK_LEN))
        if np.max(np.abs(scales), initial=0) > LARGEST_SCALE:
            raise Misfit("it has values whose scale is beyond float16")
        blocks = np.empty(len(codes), self.layout)
        blocks["scales"], blocks["codes"] = scales[:, 0].astype("<f2"), codes
        return blocks.view(np.uint8).reshape(len(rows), -1)


def _eight_bits(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scales)
    sizes = np.abs(scaled)
    whole = np.floor(sizes)
    whole += np.floor(2 * (sizes - whole))  # halves up; a sum with 0.5 would round 0.49999997 to 1
    return scales, (np.sign(scaled) * whole).astype(np.int8)


def _four_bits(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two codes a byte: that of the first half of the block in the lower bits."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scales = largest / np.float32(-8)
    # Product and sum are rounded one after the other, as C says; compilers that fuse them give other codes of halves.
    codes = np.minimum(blocks * _inverse(scales) + np.float32(8.5), 15).astype(np.uint8)
    half = BLOCK_LEN // 2
    return scales, codes[:, :half] | codes[:, half:] << np.uint8(4)


def _inverse(scales: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        found = np.float32(1) / scales
    return np.where(np.isfinite(found), found, np.float32(0))  # such scales are 0 in float16


GGML_BLOCKS = {
    blocks.name: blocks
    for blocks in (
        GgmlBlocks("Q8_0", np.dtype([("scales", "<f2"), ("codes", "i1", BLOCK_LEN)]), _eight_bits),
        GgmlBlocks("Q4_0", np.dtype([("scales", "<f2"), ("codes", "u1", BLOCK_LEN // 2)]), _four_bits),
    )
}
"""By the names of tensor types."""
