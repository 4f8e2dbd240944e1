"""SmolLM2 with Q6_K, as llama.cpp's quantizer mixes it: blocks of 256 values need rows of that multiple, which only the
down projections have (1536); all others are Q8_0, which it substitutes, too.

ggml's layout (ggml-common.h, block_q6_K): 256 codes of 6 bits, of which the lower 4 lie apart from the upper 2; 16
scales of 8 bits, one for 16 values each; one float16 for all of them.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.gguf_write import write_gguf
from checkpoints.formats.tensor_file import TensorInfo

BLOCK_LEN, GROUP_LEN, BLOCK_BYTES = 256, 16, 210
LEAST_CODE, MOST_SCALE = -32, 127
PART = "ffn_down.weight"


def with_q6_k(source: Path, other: Path, path: Path) -> None:
    """Writes `path`: the down projections of `source` in Q6_K, all else as in `other`, a file of the same model."""
    from gguf import GGUFReader

    given, copied = GgufFile(source), GgufFile(other)
    raw = {tensor.name: tensor.data for tensor in GGUFReader(other).tensors}
    infos = list(map(_declared, copied.tensors.values()))

    def make(info: TensorInfo) -> Iterator[np.ndarray]:
        if info.dtype == "Q6_K":
            yield encode(np.asarray(given.read_rows(info.name, 0, info.shape[0]), np.float32))
        else:
            yield raw[info.name]

    write_gguf(path, copied.metadata, infos, make, {"of": str(source)}, is_renewed=True)


def encode(values: np.ndarray) -> np.ndarray:
    """`[..., 256 n]` float32 -> blocks `[blocks, 210]` uint8. Each group's largest value has the code -32."""
    groups = values.reshape(-1, BLOCK_LEN // GROUP_LEN, GROUP_LEN)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]
    exact = largest / LEAST_CODE
    step = (np.abs(exact).max(-1, keepdims=True) / MOST_SCALE).astype(np.float16)
    wide = np.where(step == 0, np.float32(1), step.astype(np.float32))
    scales = np.rint(exact / wide).clip(-MOST_SCALE - 1, MOST_SCALE)
    divisors = (scales * wide)[..., None]
    codes = np.rint(groups / np.where(divisors == 0, 1, divisors)).clip(LEAST_CODE, -LEAST_CODE - 1) - LEAST_CODE
    # 2 halves of 128 codes, 4 quarters of each: two share a byte of nibbles, all four a byte of bit pairs.
    quarters = codes.astype(np.uint8).reshape(-1, 2, 4, 32)
    nibbles = (quarters[:, :, :2] & 15) | (quarters[:, :, 2:] & 15) << 4
    pairs = np.bitwise_or.reduce((quarters >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=2)
    parts = (nibbles, pairs, scales.astype(np.int8).view(np.uint8), step.view(np.uint8))
    return np.concatenate([part.reshape(len(groups), -1) for part in parts], axis=1)


def _declared(info: TensorInfo) -> TensorInfo:
    if not info.name.endswith(PART):
        return info
    rows, row_len = info.shape
    return TensorInfo(info.name, info.shape, "Q6_K", rows * row_len // BLOCK_LEN * BLOCK_BYTES)
