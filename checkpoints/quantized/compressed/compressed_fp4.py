"""Host: weights of 4-bit floats of compressed-tensors, with a scale for each block of inputs.

    weight_packed  uint8 [out, in / 2]      two codes a byte, the low bits first
    NVFP4          weight_scale FP8 [out, in / 16], weight_global_scale [1]      scale = weight_scale / global scale
    MXFP4          weight_scale uint8 [out, in / 32]                             scale = 2^(weight_scale - 127)

The values of MXFP4 are those of the OCP Microscaling formats (specification 1.0, section 5.3.3), which NVFP4 shares.
"""

from dataclasses import dataclass

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.bit_fields import nibbles
from checkpoints.quantized.quantized_weight import Misfit, names_of, part, weight_info, whole_tensor

CODES = ".weight_packed"
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = np.array([*_MAGNITUDES, *(-x for x in _MAGNITUDES)], np.float32)
_NOT_A_NUMBER, _BIAS = 255, 127  # of E8M0
NV_BLOCK, MX_BLOCK = 16, 32


@dataclass(frozen=True, slots=True)
class Fp4Scheme:
    """NVFP4 where a weight has a global scale, else MXFP4."""

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return info.name.endswith(CODES) and info.dtype == "U8"

    def weight(self, file: ColumnFile, name: str) -> "Fp4Weight":
        """See `Scheme`."""
        codes, module = file.tensors[name], name.removesuffix(CODES)
        overall = None
        if f"{module}.weight_global_scale" in file.tensors:
            overall = part(file.tensors, f"{module}.weight_global_scale", ["F32"], [(1,), ()], name)
        block, dtype = (MX_BLOCK, "U8") if overall is None else (NV_BLOCK, "F8_E4M3")
        if len(codes.shape) != 2 or codes.shape[1] * 2 % block:
            raise Misfit(f"{name} of shape {list(codes.shape)} has no blocks of {block} codes")
        shape = num_out, num_in = codes.shape[0], codes.shape[1] * 2
        scales = part(file.tensors, f"{module}.weight_scale", [dtype], [(num_out, num_in // block)], name)
        parts = codes, scales, overall
        info = weight_info(f"{module}.weight", shape, "MXFP4" if overall is None else "NVFP4", parts)
        return Fp4Weight(info, names_of(*parts), *parts)


@dataclass(frozen=True, slots=True)
class Fp4Weight:
    """A `QuantizedWeight`."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    scales: TensorInfo
    overall: TensorInfo | None

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        values = VALUES[nibbles(file.read_rows(self.codes.name, start, stop), is_high_first=False)]
        scales = file.read_rows(self.scales.name, start, stop)
        if self.overall is None:
            steps = np.ldexp(np.float32(1), scales.astype(np.int32) - _BIAS)
            steps = np.where(scales == _NOT_A_NUMBER, np.float32(np.nan), steps)
        else:
            steps = scales.astype(np.float32) / whole_tensor(file, self.overall).reshape(1, 1)
        blocks = values.reshape(*steps.shape, values.shape[1] // steps.shape[1])
        return (blocks * steps[:, :, None]).reshape(values.shape)
