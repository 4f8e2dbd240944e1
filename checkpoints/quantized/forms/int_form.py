"""Host: integers, written in the forms of compressed-tensors: whole bytes, or packed into words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.quantized.bit_fields import WORD, packed
from checkpoints.quantized.compressed_config import BY_TOKEN
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, config_of, finite
from checkpoints.quantized.quantized_weight import Misfit


@dataclass(frozen=True, slots=True)
class IntForm:
    """bits: of a code. group_len: inputs that share a scale; None: all of a row. has_coded_inputs: products code the
    activations in 8 bits, too, each token by its own scale; codes are whole bytes then, else packed."""

    bits: int
    group_len: int | None = None
    has_coded_inputs: bool = False

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        by_group = {"strategy": "channel"}
        if self.group_len is not None:
            by_group = {"strategy": "group", "group_size": self.group_len}
        weights: dict[str, Any] = {"num_bits": self.bits, "type": "int", "symmetric": True} | by_group
        if self.has_coded_inputs:
            return config_of("int-quantized", weights, BY_TOKEN)
        return config_of("pack-quantized", weights, None)

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        num_out, num_in = shape
        if num_in % (self.group_len or 1) or num_in * self.bits % WORD:
            raise Misfit(f"{num_in} inputs are not a multiple of {self.group_len or WORD // self.bits}")
        scales = WrittenPart(".weight_scale", "F32", (num_out, num_in // (self.group_len or num_in)), SCALES)
        if self.has_coded_inputs:
            return [WrittenPart(".weight", "I8", shape, np.dtype(np.int8)), scales]
        words = WrittenPart(".weight_packed", "I32", (num_out, num_in * self.bits // WORD), np.dtype(np.int32))
        return [words, scales, WrittenPart(".weight_shape", "I64", (2,), np.dtype(np.int64))]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`. The largest value of a group becomes the largest code."""
        largest = 2 ** (self.bits - 1) - 1
        groups = finite(rows).reshape(len(rows), -1, self.group_len or rows.shape[1])
        scales = np.max(np.abs(groups), axis=2) / np.float32(largest)
        codes = np.rint(groups / np.where(scales > 0, scales, np.float32(1))[:, :, None])
        return self.stored(codes.astype(np.int8).reshape(rows.shape), scales)

    def stored(self, codes: np.ndarray, scales: np.ndarray) -> list[np.ndarray]:
        """Codes [rows, in] and scales [rows, groups] as they are written."""
        if self.has_coded_inputs:
            return [codes, scales]
        return [packed((codes.astype(np.int16) + 2 ** (self.bits - 1)).astype(np.uint8), self.bits), scales]

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return [] if self.has_coded_inputs else [np.array(shape, np.int64)]
