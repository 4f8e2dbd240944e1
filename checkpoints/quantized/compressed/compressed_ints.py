"""Host: integer weights of compressed-tensors, of 2 to 8 bits.

    int-quantized, naive-quantized      weight         int8  [out, in]
    pack-quantized                      weight_packed  int32 [out, in · bits / 32]    stored as code + 2^(bits - 1)

    w[o, i] = weight_scale[o, g] · (code[o, i] - zero[o, g])

Codes of 3, 5, 6 and 7 bits may lie in two words; releases of that library before 0.18 put only whole codes in a word.

Scales are [out, groups], or one for all. Zero points are signed, too: int8 like the scales, or with packed codes int32
[out · bits / 32, groups], packed along the outputs. weight_g_idx int32 [in] is the group of each input; without it, or
where it is -1, inputs are grouped in order. Codes with coded activations may have outliers (`outlier_weight.py`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.bit_fields import WORD, num_words, unpacked
from checkpoints.quantized.group_codes import (
    GroupCodes,
    form_in_order,
    form_of_groups,
    group_len_of,
    in_order,
    order_of,
)
from checkpoints.quantized.outlier_weight import with_outliers
from checkpoints.quantized.quantized_weight import (
    FLOATS,
    Misfit,
    QuantizedWeight,
    check_part,
    names_of,
    part,
    weight_info,
    whole_tensor,
)

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

PACKED = ".weight_packed"
WHOLE = ".weight"
QTENSOR_BITS = 8


@dataclass(frozen=True, slots=True)
class IntScheme:
    """bits: of a code. group_sizes: see `group_len_of`. has_coded_inputs: the file asks for activations of 8 bits, each
    token by its own scale."""

    bits: int
    group_sizes: frozenset[int]
    has_coded_inputs: bool = False

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return info.dtype == "I32" if info.name.endswith(PACKED) else info.dtype == "I8" and info.name.endswith(WHOLE)

    def weight(self, file: ColumnFile, name: str) -> QuantizedWeight:
        """See `Scheme`."""
        codes, is_packed = file.tensors[name], name.endswith(PACKED)
        module = name.removesuffix(PACKED).removesuffix(WHOLE)
        if len(codes.shape) != 2:
            raise Misfit(f"{name} has the shape {list(codes.shape)}; it must have two axes")
        num_out, num_in = codes.shape
        declared = file.tensors.get(f"{module}.weight_shape")
        are_split = True
        if is_packed:
            num_in, are_split = self._row_codes(file, codes, declared)
        scales = part(file.tensors, f"{module}.weight_scale", FLOATS, _scale_shapes(file, module, num_out), name)
        num_groups = scales.shape[1] if len(scales.shape) == 2 else 1
        groups = file.tensors.get(f"{module}.weight_g_idx")
        if groups is not None:
            check_part(groups, ["I32"], [(num_in,)], name)
        group_len = group_len_of(scales, num_groups, num_in, self.group_sizes)
        zeros = file.tensors.get(f"{module}.weight_zero_point")
        if zeros is not None and zeros.dtype == "I32":
            check_part(zeros, ["I32"], [(num_words(num_out, self.bits, are_split=are_split), num_groups)], name)
        elif zeros is not None:
            check_part(zeros, ["I8"], [scales.shape], name)
        parts = codes, scales, zeros, groups, declared
        info = weight_info(f"{module}.weight", (num_out, num_in), f"INT-{self.bits}", parts)
        weight = IntWeight(info, names_of(*parts), codes, scales, zeros, groups, group_len, are_split, self)
        return with_outliers(weight, file)

    def _row_codes(self, file: ColumnFile, codes: TensorInfo, declared: TensorInfo | None) -> tuple[int, bool]:
        """How many inputs packed rows have, whose last word may have codes of none, and whether their codes are split.
        declared: `weight_shape`, which says how many."""
        if declared is None:
            return codes.shape[1] * WORD // self.bits, True
        check_part(declared, ["I64", "I32"], [(2,)], codes.name)
        num_out, num_in = whole_tensor(file, declared).tolist()
        for are_split in True, False:
            if codes.shape == (num_out, num_words(num_in, self.bits, are_split=are_split)):
                return num_in, are_split
        raise Misfit(
            f"{codes.name} of shape {list(codes.shape)} has no codes of {self.bits} bits of {[num_out, num_in]}"
        )


def _scale_shapes(file: ColumnFile, module: str, num_out: int) -> list[tuple[int, ...]]:
    """One scale, or one for each output and group."""
    found = file.tensors.get(f"{module}.weight_scale")
    num_groups = found.shape[1] if found is not None and len(found.shape) == 2 and found.shape[1] else 1
    return [(num_out, num_groups), (num_out,), (1,), ()]


@dataclass(frozen=True, slots=True)
class IntWeight:
    """A `QuantizedWeight`. group_len: inputs of a group. are_split: see `bit_fields`."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    scales: TensorInfo
    zeros: TensorInfo | None
    groups: TensorInfo | None
    group_len: int
    are_split: bool
    scheme: IntScheme

    @property
    def row_scheme(self) -> str | None:
        """See `RowCodedWeight`."""
        num_scales = self.scales.shape[0] if self.scales.shape else 1
        by_row = self.scales.shape[1:] in ((), (1,)) and num_scales == self.info.shape[0]
        if self.scheme.bits != QTENSOR_BITS or self.zeros is not None or not by_row:
            return None
        return "w8a8" if self.scheme.has_coded_inputs else "int8"

    def row_codes(self, file: ColumnFile, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `RowCodedWeight`."""
        codes = file.read_rows(self.codes.name, start, stop)
        if codes.dtype == np.int32:
            codes = self._unpacked_rows(codes).astype(np.int8)
        return codes, self._by_group(file, self.scales, start, stop)[:, 0]

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        codes = file.read_rows(self.codes.name, start, stop)
        values = (self._unpacked_rows(codes) if codes.dtype == np.int32 else codes).astype(np.float32)
        scales = self._by_group(file, self.scales, start, stop)
        group = self._group_of(file, scales.shape[1])
        if self.zeros is not None:
            zeros = self._by_group(file, self.zeros, start, stop)
            values -= zeros if group is None else zeros[:, group]
        values *= scales if group is None else scales[:, group]
        return values

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """See `GroupedWeight`; None where groups have different numbers of inputs."""
        num_in, has_zeros = self.info.shape[1], self.zeros is not None
        form = form_of_groups(self.scheme.bits, self.group_len, num_in, self.scales, has_zeros=has_zeros)
        return form_in_order(self, file, form)

    def order(self, file: ColumnFile) -> np.ndarray | None:
        """See `OrderedWeight`."""
        return order_of(self._group_of(file, self._num_groups), self._num_groups)

    def group_codes(self, file: ColumnFile, start: int, stop: int) -> GroupCodes:
        """See `GroupedWeight`; codes and zero points are signed in the file."""
        codes = file.read_rows(self.codes.name, start, stop)
        codes = self._unpacked_rows(codes) if codes.dtype == np.int32 else codes.astype(np.int16)
        scales = self._by_group(file, self.scales, start, stop)
        scales = np.broadcast_to(scales, (len(codes), scales.shape[1]))
        zeros = np.float32(0) if self.zeros is None else self._by_group(file, self.zeros, start, stop)
        half = 2 ** (self.scheme.bits - 1)
        return GroupCodes(codes + half, scales, np.broadcast_to(zeros + half, scales.shape))

    @property
    def _num_groups(self) -> int:
        return self.scales.shape[1] if len(self.scales.shape) == 2 else 1

    def _by_group(self, file: ColumnFile, info: TensorInfo, start: int, stop: int) -> np.ndarray:
        """Of rows, [stop - start, groups] or, of all rows, [1, 1]."""
        values = whole_tensor(file, info)
        if values.dtype == np.int32:
            values = self._unpacked(values, axis=0)
        values = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
        return (values[start:stop] if len(values) == self.info.shape[0] or info.dtype == "I32" else values).astype(
            np.float32
        )

    def _unpacked_rows(self, words: np.ndarray) -> np.ndarray:
        return self._unpacked(words, axis=1)[:, : self.info.shape[1]]

    def _unpacked(self, words: np.ndarray, axis: int) -> np.ndarray:
        bits = self.scheme.bits
        return unpacked(words, bits, axis, are_split=self.are_split).astype(np.int16) - 2 ** (bits - 1)

    def _group_of(self, file: ColumnFile, num_groups: int) -> np.ndarray | None:
        """Of each input; None: there is one group."""
        if num_groups == 1:
            return None
        num_in = self.info.shape[1]
        group = None if self.groups is None else whole_tensor(file, self.groups)
        if group is None or (group == -1).all():
            return in_order(num_in, self.group_len)
        if group.min() < 0 or group.max() >= num_groups:
            raise CheckpointError(f"weight_g_idx of {self.info.name} names groups from {group.min()} to {group.max()}")
        return group
