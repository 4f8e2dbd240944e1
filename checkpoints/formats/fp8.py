"""Host: `Fp8File`: decodes FP8 weights with their scales to float32.

A weight `w` of type F8_E4M3 or F8_E5M2 has a scale `<name>_scale` or `<name>_scale_inv`, and is *multiplied* by it
under either name. There is one scale per tensor, per row, or per block of rows and columns, where the last blocks are
cut off at the edges (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). Products are computed in float32.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.tensor_file import TensorFile, TensorInfo
from checkpoints.quantization import Fp8Scheme

_FP8 = frozenset({"F8_E4M3", "F8_E5M2"})
_SCALES = frozenset({"F32", "F16", "BF16"})
_SCALE_SUFFIXES = ("_scale_inv", "_scale")
# Scales of activations and of the KV cache, which are not quantized here.
_UNUSED = (".input_scale", ".input_scale_ub", ".activation_scale", ".output_scale")
_UNUSED_KV = (".k_scale", ".v_scale", ".q_scale", ".kv_scale")


def decoded(file: TensorFile, scheme: Fp8Scheme | None, where: str) -> TensorFile:
    """The file itself without a scheme, else an `Fp8File` over it; closed where it does not fit the scheme."""
    if scheme is None:
        return file
    try:
        return Fp8File(file, scheme, where)
    except CheckpointError:
        file.close()
        raise


class Fp8File:
    """A `TensorFile` whose FP8 weights read as float32 rows; scales are not among its tensors."""

    def __init__(self, file: TensorFile, scheme: Fp8Scheme, where: str) -> None:
        self._file, self._scheme = file, scheme
        self.metadata: dict[str, Any] = file.metadata
        self._scales: dict[str, TensorInfo] = {}
        problems = list(self._pair())
        if problems:
            raise CheckpointError(f"{where}: {len(problems)} FP8 tensors cannot be decoded{listed(problems)}")
        hidden = {scale.name for scale in self._scales.values()}
        self.tensors = {
            name: info for name, info in file.tensors.items() if name not in hidden and not _is_unused(name)
        }

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        rows = self._file.read_rows(name, start, stop)
        if name not in self._scales:
            return rows
        scale = self._scales[name]
        values = self._file.read_rows(scale.name, 0, scale.num_rows).reshape(scale.shape).astype(np.float32)
        return rows.astype(np.float32) * self._spread(values, start, stop, rows.shape[1])

    def close(self) -> None:
        self._file.close()

    def _spread(self, scale: np.ndarray, start: int, stop: int, num_columns: int) -> np.ndarray:
        """The scales of rows `[start, stop)`, broadcastable to them."""
        if self._scheme.strategy == "tensor":
            return scale.reshape(1, 1)
        if self._scheme.strategy == "channel":
            return scale.reshape(-1, 1)[start:stop]
        block_rows, block_columns = self._scheme.block
        return np.repeat(scale[np.arange(start, stop) // block_rows], block_columns, axis=1)[:, :num_columns]

    def _pair(self) -> Iterator[str]:
        """Finds the scale of every FP8 weight; yields the problems."""
        for name, info in self._file.tensors.items():
            if info.dtype not in _FP8:
                continue
            found = [scale for suffix in _SCALE_SUFFIXES if (scale := self._file.tensors.get(name + suffix))]
            if len(found) != 1:
                yield f"{name} has {len(found)} scales; it needs {name}_scale or {name}_scale_inv"
            elif len(info.shape) != 2:
                yield f"{name} has the shape {list(info.shape)}; FP8 weights must have two axes"
            elif found[0].dtype not in _SCALES:
                known = ", ".join(sorted(_SCALES))
                yield f"{found[0].name} has the type {found[0].dtype}; scales must be one of {known}"
            elif found[0].shape not in (shapes := self._shapes(info)):
                expected = " or ".join(str(list(shape)) for shape in shapes)
                yield f"{found[0].name} has the shape {list(found[0].shape)}; {name} needs {expected}"
            else:
                self._scales[name] = found[0]

    def _shapes(self, weight: TensorInfo) -> tuple[tuple[int, ...], ...]:
        """The shapes that the scales of a weight may have."""
        num_rows, num_columns = weight.shape
        match self._scheme.strategy:
            case "tensor":
                return (), (1,), (1, 1)
            case "channel":
                return (num_rows, 1), (num_rows,)
            case "block":
                rows, columns = self._scheme.block
                return ((-(-num_rows // rows), -(-num_columns // columns)),)


def _is_unused(name: str) -> bool:
    return name.endswith(_UNUSED) or (name.endswith(_UNUSED_KV) and "attn" in name)
