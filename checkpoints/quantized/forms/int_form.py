"""Host: integers of 8 bits with a scale for each row, in the forms of compressed-tensors: whole bytes, or in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.quantized.bit_fields import WORD, packed
from checkpoints.quantized.compressed.compressed_config import BY_TOKEN
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, config_of, finite
from checkpoints.quantized.quantized_weight import Misfit

BITS = 8
_LARGEST = 2 ** (BITS - 1) - 1
_CODES_IN_WORD = WORD // BITS


@dataclass(frozen=True, slots=True)
class IntForm:
    """has_coded_inputs: products code the activations in 8 bits, too, each token by its own scale; codes are whole
    bytes then, else packed."""

    has_coded_inputs: bool = False

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        weights: dict[str, Any] = {"num_bits": BITS, "type": "int", "symmetric": True, "strategy": "channel"}
        if self.has_coded_inputs:
            return config_of("int-quantized", weights, BY_TOKEN)
        return config_of("pack-quantized", weights, None)

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        num_out, num_in = shape
        if num_in % _CODES_IN_WORD:
            raise Misfit(f"{num_in} inputs are not a multiple of {_CODES_IN_WORD}")
        scales = WrittenPart(".weight_scale", "F32", (num_out, 1), SCALES)
        if self.has_coded_inputs:
            return [WrittenPart(".weight", "I8", shape, np.dtype(np.int8)), scales]
        words = WrittenPart(".weight_packed", "I32", (num_out, num_in // _CODES_IN_WORD), np.dtype(np.int32))
        return [words, scales, WrittenPart(".weight_shape", "I64", (2,), np.dtype(np.int64))]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`. The largest value of a row becomes the largest code."""
        scales = np.max(np.abs(finite(rows)), axis=1, keepdims=True) / np.float32(_LARGEST)
        codes = np.rint(rows / np.where(scales > 0, scales, np.float32(1))).astype(np.int8)
        if self.has_coded_inputs:
            return [codes, scales]
        return [packed((codes.astype(np.int16) + _LARGEST + 1).astype(np.uint8), BITS), scales]

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return [] if self.has_coded_inputs else [np.array(shape, np.int64)]
