"""Host: weights that AutoAWQ writes in its version "GEMM" (Lin et al., arXiv 2306.00978).

    qweight  int32 [in, out / 8]        eight codes of 4 bits a word, packed along the outputs
    qzeros   int32 [groups, out / 8]    zero points, packed alike
    scales   [groups, out]

    w[o, i] = scales[g, o] · (code[i, o] - zero[g, o])        g = i // group_size

The outputs of a word stand in the order 0 2 4 6 1 3 5 7, from the lowest bits on.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.bit_fields import WORD, unpacked
from checkpoints.quantized.group_codes import GroupCodes, form_of_groups, group_len_of, in_order
from checkpoints.quantized.quantized_weight import (
    FLOATS,
    Misfit,
    names_of,
    num_groups_of,
    part,
    weight_info,
)

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

BITS = 4
CODES = ".qweight"
_PER_WORD = WORD // BITS
_PLACE = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # in a word, of each output


@dataclass(frozen=True, slots=True)
class AwqScheme:
    """Codes of 4 bits. group_sizes: see `group_len_of`."""

    group_sizes: frozenset[int]

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return info.name.endswith(CODES)

    def weight(self, file: ColumnFile, name: str) -> "AwqWeight":
        """See `Scheme`."""
        codes, module = file.tensors[name], name.removesuffix(CODES)
        if codes.dtype != "I32" or len(codes.shape) != 2:
            raise Misfit(f"{name} of type {codes.dtype} and shape {list(codes.shape)} has no codes of {BITS} bits")
        num_in, num_words = codes.shape
        num_groups = num_groups_of(file.tensors, f"{module}.scales")
        scales = part(file.tensors, f"{module}.scales", FLOATS, [(num_groups, num_words * _PER_WORD)], name)
        zeros = part(file.tensors, f"{module}.qzeros", ["I32"], [(num_groups, num_words)], name)
        group_len = group_len_of(scales, num_groups, num_in, self.group_sizes)
        parts = codes, zeros, scales
        info = weight_info(f"{module}.weight", (num_words * _PER_WORD, num_in), f"AWQ-{BITS}", parts)
        return AwqWeight(info, names_of(*parts), *parts, group_len)


@dataclass(frozen=True, slots=True)
class AwqWeight:
    """A `QuantizedWeight`. group_len: inputs of a group."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    zeros: TensorInfo
    scales: TensorInfo
    group_len: int

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        return self.group_codes(file, start, stop).values(in_order(self.info.shape[1], self.group_len))

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """See `GroupedWeight`; None where the last group has fewer inputs."""
        return form_of_groups(BITS, self.group_len, self.info.shape[1], self.scales, has_zeros=True)

    def group_codes(self, file: ColumnFile, start: int, stop: int) -> GroupCodes:
        """See `GroupedWeight`."""
        first, last = start // _PER_WORD, -(-stop // _PER_WORD)
        rest = slice(start - first * _PER_WORD, stop - first * _PER_WORD)
        codes, zeros = (
            _in_order(file.read_columns(info.name, first, last))[:, rest] for info in (self.codes, self.zeros)
        )
        return GroupCodes(codes.T, file.read_columns(self.scales.name, start, stop).T, zeros.T)


def _in_order(words: np.ndarray) -> np.ndarray:
    """Codes of the outputs, one after the other."""
    codes = unpacked(words, BITS, axis=1).reshape(len(words), -1, _PER_WORD)
    return codes[:, :, _PLACE].reshape(len(words), -1)
