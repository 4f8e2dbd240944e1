"""Host: FP8 weights with scales.

A weight `w` of type F8_E4M3 or F8_E5M2 has a scale `<name>_scale` or `<name>_scale_inv`, and is *multiplied* by it
under either name. There is one scale per tensor, per row, or per block of rows and columns, where the last blocks are
cut off at the edges (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). Products are computed in float32.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.quantized_weight import FLOATS, Misfit, check_part, names_of, whole_tensor

FP8 = frozenset({"F8_E4M3", "F8_E5M2"})
_SCALE_SUFFIXES = ("_scale_inv", "_scale")


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """Which values of a weight `[out, in]` share a scale: all, those of one row, or of one block `[rows, columns]`."""

    strategy: Literal["tensor", "channel", "block"]
    block: tuple[int, int] = (1, 1)

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`. Scales of NVFP4 have the same type."""
        return info.dtype in FP8 and not info.name.endswith(_SCALE_SUFFIXES)

    def weight(self, file: ColumnFile, name: str) -> "Fp8Weight":
        """See `Scheme`."""
        info = file.tensors[name]
        found = [scale for suffix in _SCALE_SUFFIXES if (scale := file.tensors.get(name + suffix))]
        if len(found) != 1:
            raise Misfit(f"{name} has {len(found)} scales; it needs {name}_scale or {name}_scale_inv")
        if len(info.shape) != 2:
            raise Misfit(f"{name} has the shape {list(info.shape)}; FP8 weights must have two axes")
        check_part(found[0], FLOATS, self._shapes(info), name)
        return Fp8Weight(info, names_of(info, found[0]), found[0], self)

    def spread(self, scale: np.ndarray, start: int, stop: int, num_columns: int) -> np.ndarray:
        """The scales of rows `[start, stop)`, broadcastable to them."""
        if self.strategy == "tensor":
            return scale.reshape(1, 1)
        if self.strategy == "channel":
            return scale.reshape(-1, 1)[start:stop]
        block_rows, block_columns = self.block
        return np.repeat(scale[np.arange(start, stop) // block_rows], block_columns, axis=1)[:, :num_columns]

    def _shapes(self, weight: TensorInfo) -> tuple[tuple[int, ...], ...]:
        """The shapes that the scales of a weight may have."""
        num_rows, num_columns = weight.shape
        match self.strategy:
            case "tensor":
                return (), (1,), (1, 1)
            case "channel":
                return (num_rows, 1), (num_rows,)
            case "block":
                rows, columns = self.block
                return ((-(-num_rows // rows), -(-num_columns // columns)),)


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """A `QuantizedWeight`."""

    info: TensorInfo
    tensors: tuple[str, ...]
    scale: TensorInfo
    scheme: Fp8Scheme

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        codes = file.read_rows(self.info.name, start, stop)
        scales = whole_tensor(file, self.scale).astype(np.float32)
        return codes.astype(np.float32) * self.scheme.spread(scales, start, stop, codes.shape[1])
