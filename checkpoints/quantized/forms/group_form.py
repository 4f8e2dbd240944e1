"""Host: integers of 4 bits in groups with a scale and a zero point, in the form of compressed-tensors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.quantized.bit_fields import WORD, packed
from checkpoints.quantized.forms.group_range import codes_of, group_ranges
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, config_of, finite
from checkpoints.quantized.group_codes import GroupCodes, fields_of, in_order
from checkpoints.quantized.quantized_weight import Misfit

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

BITS = 4
_CODES_IN_WORD = WORD // BITS


@dataclass(frozen=True, slots=True)
class GroupForm:
    """group_len: inputs that share a scale and a zero point."""

    group_len: int

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        by_group = {"strategy": "group", "group_size": self.group_len}
        config = config_of("pack-quantized", {"num_bits": BITS, "type": "int", "symmetric": False} | by_group, None)
        return config | {
            "run_compressed": False
        }  # transformers 5.24 decodes groups with zero points while loading only

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`. Zero points are packed along the outputs."""
        num_out, num_in = shape
        if num_in % self.group_len:
            raise Misfit(f"{num_in} inputs are not a multiple of {self.group_len}")
        num_groups, words = num_in // self.group_len, np.dtype(np.int32)
        return [
            WrittenPart(".weight_packed", "I32", (num_out, num_in // _CODES_IN_WORD), words),
            WrittenPart(".weight_scale", "F32", (num_out, num_groups), SCALES),
            WrittenPart(".weight_zero_point", "I32", (-(-num_out // _CODES_IN_WORD), num_groups), words),
            WrittenPart(".weight_shape", "I64", (2,), np.dtype(np.int64)),
        ]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`."""
        found = self._group_codes(finite(rows))
        return self.stored(found.codes, found.scales, found.zeros)

    def rounded(self, rows: np.ndarray) -> np.ndarray:
        """See `Coding`."""
        found = self._group_codes(rows)
        return found.values(in_order(rows.shape[1], self.group_len))

    def block_form(self) -> "BlockForm":
        """See `BlockCoding`."""
        from pallas_kernels.block_forms.int_forms import int_form

        form = int_form(BITS, self.group_len, SCALES.name, has_zeros=True)
        assert form is not None
        return form

    def fields(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """See `BlockCoding`."""
        return fields_of(self.block_form(), self._group_codes(rows))

    def _group_codes(self, rows: np.ndarray) -> GroupCodes:
        groups = rows.reshape(len(rows), -1, self.group_len)
        scales, zeros = group_ranges(groups, BITS)
        codes = codes_of(groups, scales[..., None], zeros[..., None], BITS)
        return GroupCodes(codes.reshape(rows.shape), scales, zeros)

    def stored(self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> list[np.ndarray]:
        """Codes [rows, ...], scales and zero points [rows, groups] as they are written."""
        missing = -len(zeros) % _CODES_IN_WORD
        zeros = np.pad(zeros, ((0, missing), (0, 0)))
        return [packed(codes.reshape(len(codes), -1), BITS), scales, packed(zeros.T, BITS).T]

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return [np.array(shape, np.int64)]
