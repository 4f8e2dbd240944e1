"""Host: NF4 (Dettmers et al., QLoRA, arXiv 2305.14314), as bitsandbytes writes it, without double quantization."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.quantized.bitsandbytes import STATE
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, finite
from checkpoints.quantized.quantized_weight import Misfit

BLOCK = 64
# The quantiles of the normal distribution, scaled to [-1, 1] (appendix E of the paper).
VALUES = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
_MIDDLES = (VALUES[1:] + VALUES[:-1]) / 2
_BYTES = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Nf4Form:
    """Blocks of 64 codes, each with a factor."""

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        return {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": False,
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_quant_storage": "uint8",
            "llm_int8_skip_modules": ["lm_head"],
        }

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        num_codes = shape[0] * shape[1]
        if shape[1] % BLOCK:
            raise Misfit(f"{shape[1]} inputs are not a multiple of {BLOCK}")
        (state,) = (part for part in self.constants(shape) if part.dtype == _BYTES)
        return [
            WrittenPart(".weight", "U8", (num_codes // 2, 1), _BYTES),
            WrittenPart(".weight.absmax", "F32", (num_codes // BLOCK,), SCALES),
            WrittenPart(".weight.quant_map", "F32", (len(VALUES),), SCALES),
            WrittenPart(f".weight{STATE}nf4", "U8", state.shape, _BYTES),
        ]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`."""
        codes, factors = self._codes(finite(rows))
        return [(codes[0::2] << 4 | codes[1::2])[:, None], factors]

    def rounded(self, rows: np.ndarray) -> np.ndarray:
        """See `Coding`."""
        codes, factors = self._codes(rows)
        return (VALUES[codes].reshape(-1, BLOCK) * factors[:, None]).reshape(rows.shape)

    def _codes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(codes [N · I], factors of blocks)."""
        blocks = rows.reshape(-1, BLOCK)
        factors = np.max(np.abs(blocks), axis=1)
        scaled = blocks / np.where(factors > 0, factors, np.float32(1))[:, None]
        return np.searchsorted(_MIDDLES, scaled.reshape(-1)).astype(np.uint8), factors

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": "bfloat16", "shape": list(shape)}
        return [VALUES, np.frombuffer(json.dumps(state).encode(), np.uint8)]
