"""SmolLM2 with blocks that `jaxserve quantize` does not write, mixed as llama.cpp's quantizer mixes them: those of 256
values need rows of that multiple, which only the down projections have (1536). Others have Q8_0 instead of Q6_K, Q5_1
instead of Q5_K and Q5_0 instead of Q4_K (llama-quant.cpp, `tensor_type_fallback`).

Codes are the nearest ones; llama.cpp also looks for better scales. Layouts are ggml's (ggml-common.h).
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.gguf_write import write_gguf
from checkpoints.formats.tensor_file import TensorInfo
from tests.support.compiled.more_bits import have_more_bits

LEAST_CODE, MOST_SCALE = -32, 127  # of Q6_K
MOST_SCALE_WITH_MINIMA = 63  # of Q4_K and Q5_K, in 6 bits
LAYER, DOWN, VALUES = "blk.", "ffn_down.weight", "attn_v.weight"


def _with_more_bits(name: str, num_layers: int, down: str, other: str) -> str:
    """Of a mixture in which some layers have more bits for values and down projections; else `down` and `other`."""
    has_more = have_more_bits(num_layers)[int(name.split(".")[1])]
    if name.endswith(DOWN):
        return "Q6_K" if has_more else down
    return "Q8_0" if has_more and name.endswith(VALUES) else other


MIXTURES: dict[str, Callable[[str, int], str]] = {
    "q6_k": lambda name, _: "Q6_K" if name.endswith(DOWN) else "Q8_0",
    "q5_0": lambda name, _: "Q5_0",
    "q5_k_m": partial(_with_more_bits, down="Q5_K", other="Q5_1"),
    "q4_k_m": partial(_with_more_bits, down="Q4_K", other="Q5_0"),
}
"""The type of a layer's matrix, by its name and the number of layers."""


def write_mixture(mixture: str, source: Path, other: Path, path: Path) -> None:
    """Writes `path`: matrices of the layers of `source` in these types, all else as in `other`, a file of the same
    model with Q8_0."""
    from gguf import GGUFReader

    given, copied, type_of = GgufFile(source), GgufFile(other), MIXTURES[mixture]
    raw = {tensor.name: tensor.data for tensor in GGUFReader(other).tensors}
    num_layers = 1 + max(int(name.split(".")[1]) for name in copied.tensors if name.startswith(LAYER))

    def declared(info: TensorInfo) -> TensorInfo:
        is_changed = info.name.startswith(LAYER) and info.dtype == "Q8_0"
        kind = type_of(info.name, num_layers) if is_changed else info.dtype
        if kind == info.dtype:
            return info
        block_len, block_bytes = _sizes(kind)
        rows, row_len = info.shape
        return TensorInfo(info.name, info.shape, kind, rows * row_len // block_len * block_bytes)

    def make(info: TensorInfo) -> Iterator[np.ndarray]:
        if info.dtype == copied.tensors[info.name].dtype:
            yield raw[info.name]
        else:
            yield encode(np.asarray(given.read_rows(info.name, 0, info.shape[0]), np.float32), info.dtype)

    infos = list(map(declared, copied.tensors.values()))
    write_gguf(path, copied.metadata, infos, make, {"of": str(source)}, is_renewed=True)


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """`[rows, columns]` float32 -> blocks of a type, uint8."""
    if kind == "Q6_K":
        return encode_q6_k(values)
    if kind in ("Q4_K", "Q5_K"):
        return encode_with_minima(values, int(kind[1]))
    from gguf import GGMLQuantizationType, quants

    return quants.quantize(values, GGMLQuantizationType[kind])


def encode_q6_k(values: np.ndarray) -> np.ndarray:
    """`[..., 256 n]` -> `[blocks, 210]`: 256 codes of 6 bits, of which the lower 4 lie apart from the upper 2; 16
    scales of 8 bits, one for 16 values each; one float16 for all of them. Each group's largest value has the code
    -32."""
    groups = values.reshape(-1, 16, 16)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]
    exact = largest / LEAST_CODE
    step, wide = _float16(np.abs(exact).max(-1, keepdims=True) / MOST_SCALE)
    scales = np.rint(exact / wide).clip(-MOST_SCALE - 1, MOST_SCALE)
    codes = np.rint(groups / _or_one((scales * wide)[..., None])).clip(LEAST_CODE, -LEAST_CODE - 1) - LEAST_CODE
    # 2 halves of 128 codes, 4 quarters of each: two share a byte of nibbles, all four a byte of bit pairs.
    quarters = codes.astype(np.uint8).reshape(-1, 2, 4, 32)
    nibbles = (quarters[:, :, :2] & 15) | (quarters[:, :, 2:] & 15) << 4
    pairs = np.bitwise_or.reduce((quarters >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=2)
    return _joined(nibbles, pairs, scales.astype(np.int8), step)


def encode_with_minima(values: np.ndarray, num_bits: int) -> np.ndarray:
    """`[..., 256 n]` -> Q4_K `[blocks, 144]` or Q5_K `[blocks, 176]`: two float16, for scales and for minima; of each
    of 8 groups a scale and a minimum of 6 bits, packed in 12 bytes; the fifth bits of codes, a byte has those of 8
    groups; 256 codes of 4 bits, two groups share 32 bytes."""
    groups, most_code = values.reshape(-1, 8, 32), 2**num_bits - 1
    lowest = np.minimum(groups.min(-1), 0)
    spans = (groups.max(-1) - lowest) / most_code
    step, wide = _float16(spans.max(-1, keepdims=True) / MOST_SCALE_WITH_MINIMA)
    min_step, wide_min = _float16(-lowest.min(-1, keepdims=True) / MOST_SCALE_WITH_MINIMA)
    scales = np.rint(spans / wide).clip(0, MOST_SCALE_WITH_MINIMA)
    minima = np.rint(-lowest / wide_min).clip(0, MOST_SCALE_WITH_MINIMA)
    shifted = groups + (minima * wide_min)[..., None]
    codes = np.rint(shifted / _or_one((scales * wide)[..., None])).clip(0, most_code).astype(np.uint8)
    s, m = scales.astype(np.uint8), minima.astype(np.uint8)
    upper = (s[:, 4:] >> 4) << 6, (m[:, 4:] >> 4) << 6
    packed = np.concatenate([s[:, :4] | upper[0], m[:, :4] | upper[1], (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4], axis=1)
    fifth = np.bitwise_or.reduce((codes >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    pairs = (codes & 15).reshape(-1, 4, 2, 32)
    nibbles = pairs[:, :, 0] | pairs[:, :, 1] << 4
    return _joined(step, min_step, packed, *([fifth] if num_bits == 5 else []), nibbles)


def _float16(exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As it is stored, and to divide by."""
    stored = exact.astype(np.float16)
    return stored, _or_one(stored.astype(np.float32))


def _or_one(divisors: np.ndarray) -> np.ndarray:
    return np.where(divisors == 0, np.float32(1), divisors)


def _joined(*parts: np.ndarray) -> np.ndarray:
    """The bytes of each block's parts, one after the other."""
    return np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)


def _sizes(kind: str) -> tuple[int, int]:
    """Values and bytes of a block."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    return GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
