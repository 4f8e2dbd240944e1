"""Host: FP8 weights with scales.

A weight `w` of type F8_E4M3 or F8_E5M2 has a scale `<name>_scale` or `<name>_scale_inv`, and is *multiplied* by it
under either name. There is one scale per tensor, per row, or per block of rows and columns, where the last blocks are
cut off at the edges (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). Products are computed in float32.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import ml_dtypes
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.group_codes import SCALES
from checkpoints.quantized.quantized_weight import FLOATS, Misfit, check_part, names_of, weight_info, whole_tensor

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

FP8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_NO_NUMBERS = {"F8_E4M3": 0x7F, "F8_E5M2": 0x7C}
"""The least magnitude of codes of infinities and NaN, which kernels take for numbers."""
_SCALE_SUFFIXES = ("_scale_inv", "_scale")


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """Which values of a weight `[out, in]` share a scale: all, those of one row, or of one block `[rows, columns]`.
    has_coded_inputs: the file asks for activations of FP8."""

    strategy: Literal["tensor", "channel", "block"]
    block: tuple[int, int] = (1, 1)
    has_coded_inputs: bool = True

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
        parts = info, found[0]
        return Fp8Weight(weight_info(name, info.shape, info.dtype, parts), names_of(*parts), found[0], self)

    def spread(self, scale: np.ndarray, start: int, stop: int, num_columns: int) -> np.ndarray:
        """The scales of rows `[start, stop)`, broadcastable to them."""
        by_group = self.by_group(scale, start, stop)
        if self.strategy != "block":
            return by_group
        return np.repeat(by_group, self.group_len(num_columns), axis=1)[:, :num_columns]

    def by_group(self, scale: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Those of each row's groups of inputs, [stop - start, groups]."""
        if self.strategy == "block":
            return scale[np.arange(start, stop) // self.block[0]]
        if self.strategy == "channel":
            return scale.reshape(-1, 1)[start:stop]
        return np.broadcast_to(scale.reshape(1, 1), (stop - start, 1))

    def group_len(self, num_columns: int) -> int:
        """Inputs of a row that share a scale."""
        return min(self.block[1], num_columns) if self.strategy == "block" else num_columns

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

    @property
    def row_scheme(self) -> str | None:
        """See `RowCodedWeight`. Each token has its own scale, also where the file has one for all: at least as near."""
        is_by_row = self.info.dtype == "F8_E4M3" and self.scheme.strategy != "block"
        return "fp8" if is_by_row and self.scheme.has_coded_inputs else None

    def row_codes(self, file: ColumnFile, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `RowCodedWeight`. Codes that are no numbers stay so."""
        scales = self.scheme.by_group(whole_tensor(file, self.scale), start, stop)
        return file.read_rows(self.info.name, start, stop), scales[:, 0].astype(np.float32)

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """See `PackedWeight`; None where the last block of a row is cut off.

        On devices each row has scales of its own: scales of blocks that bfloat16 has, too, are kept in it, which is 1.6
        % of the bytes of blocks of 128 inputs, and float32 3.1 %.
        """
        from pallas_kernels.block_forms.float_forms import float_form

        num_in, scales = self.info.shape[1], SCALES[self.scale.dtype]
        group_len = self.scheme.group_len(num_in)
        if num_in % group_len:
            return None
        if group_len < num_in and scales == "float32" and _fit_bfloat16(whole_tensor(file, self.scale)):
            scales = "bfloat16"
        return float_form(FP8[self.info.dtype], group_len, scales)

    def fields(self, file: ColumnFile, form: "BlockForm", start: int, stop: int) -> dict[str, np.ndarray]:
        """See `PackedWeight`."""
        codes = file.read_rows(self.info.name, start, stop)
        if (codes.view(np.uint8) & np.uint8(127) >= _NO_NUMBERS[self.info.dtype]).any():
            raise CheckpointError(f"{self.info.name} has codes that are no numbers: use quantization='dense'")
        scales = self.scheme.by_group(whole_tensor(file, self.scale), start, stop)
        dtypes = {field.name: np.dtype(field.dtype) for field in form.fields}
        return {
            "scales": np.ascontiguousarray(scales.astype(dtypes["scales"])),
            "codes": codes,
        }


def _fit_bfloat16(values: np.ndarray) -> bool:
    return bool((values.astype(ml_dtypes.bfloat16).astype(np.float32) == values).all())
