"""Host: FP8 with a scale for each row, written in the form of compressed-tensors."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from checkpoints.quantized.forms.fp8_scales import LARGEST, row_scales
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, config_of, finite

_FLOATS = {"num_bits": 8, "type": "float", "symmetric": True}


@dataclass(frozen=True, slots=True)
class Fp8Form:
    """Of E4M3. The config asks for activations of FP8, each token by its own scale."""

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        return config_of(
            "float-quantized", _FLOATS | {"strategy": "channel"}, _FLOATS | {"strategy": "token", "dynamic": True}
        )

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        codes = WrittenPart(".weight", "F8_E4M3", shape, np.dtype(ml_dtypes.float8_e4m3fn))
        return [codes, WrittenPart(".weight_scale", "F32", (shape[0], 1), SCALES)]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`. Values beyond the largest would become NaN."""
        scales = row_scales(finite(rows))[:, None]
        values = np.clip(rows / np.where(scales > 0, scales, np.float32(1)), -LARGEST, LARGEST)
        return [values.astype(ml_dtypes.float8_e4m3fn), scales]

    def rounded(self, rows: np.ndarray) -> np.ndarray:
        """See `Coding`."""
        codes, scales = self.encode(rows)
        return codes.astype(np.float32) * scales

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return []
