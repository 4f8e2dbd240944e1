"""Host: weights that GPTQ's tools write (Frantar et al., arXiv 2210.17323; the layout of AutoGPTQ and GPTQModel).

    qweight  int32 [in · bits / 32, out]        codes, packed along the inputs
    qzeros   int32 [groups, out · bits / 32]    zero points, packed along the outputs
    scales   [groups, out]
    g_idx    int32 [in]                         the group of each input; without it inputs are grouped in order

    w[o, i] = scales[g, o] · (code[i, o] - zero[g, o])        g = g_idx[i]

Files of the first version ("gptq") store zero points less one, in as many bits: an overflow is cut off.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.bit_fields import WORD, unpacked
from checkpoints.quantized.group_codes import (
    GroupCodes,
    form_in_order,
    form_of_groups,
    group_len_of,
    in_order,
    order_of,
)
from checkpoints.quantized.quantized_weight import (
    FLOATS,
    Misfit,
    names_of,
    num_groups_of,
    part,
    weight_info,
    whole_tensor,
)

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

CODES = ".qweight"


@dataclass(frozen=True, slots=True)
class GptqScheme:
    """bits: of a code. has_zeros_less_one: of the first version. group_sizes: see `group_len_of`."""

    bits: int
    has_zeros_less_one: bool
    group_sizes: frozenset[int]

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return info.name.endswith(CODES)

    def weight(self, file: ColumnFile, name: str) -> "GptqWeight":
        """See `Scheme`."""
        codes, module = file.tensors[name], name.removesuffix(CODES)
        if codes.dtype != "I32" or len(codes.shape) != 2 or codes.shape[0] * WORD % self.bits:
            raise Misfit(f"{name} of type {codes.dtype} and shape {list(codes.shape)} has no codes of {self.bits} bits")
        num_in, num_out = codes.shape[0] * WORD // self.bits, codes.shape[1]
        num_groups = num_groups_of(file.tensors, f"{module}.scales")
        scales = part(file.tensors, f"{module}.scales", FLOATS, [(num_groups, num_out)], name)
        zeros_shape = (num_groups, num_out * self.bits // WORD)
        zeros = part(file.tensors, f"{module}.qzeros", ["I32"], [zeros_shape], name)
        groups = None
        if f"{module}.g_idx" in file.tensors:
            groups = part(file.tensors, f"{module}.g_idx", ["I32"], [(num_in,)], name)
        group_len = group_len_of(scales, num_groups, num_in, self.group_sizes)
        parts = codes, zeros, scales, groups
        info = weight_info(f"{module}.weight", (num_out, num_in), f"GPTQ-{self.bits}", parts)
        return GptqWeight(info, names_of(*parts), codes, zeros, scales, groups, group_len, self)


@dataclass(frozen=True, slots=True)
class GptqWeight:
    """A `QuantizedWeight`. group_len: inputs of a group."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    zeros: TensorInfo
    scales: TensorInfo
    groups: TensorInfo | None
    group_len: int
    scheme: GptqScheme

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        group = self._group_of(file, self.scales.shape[0])
        return self.group_codes(file, start, stop).values(group)

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """See `GroupedWeight`; None where groups have different numbers of inputs."""
        form = form_of_groups(self.scheme.bits, self.group_len, self.info.shape[1], self.scales, has_zeros=True)
        return form_in_order(self, file, form)

    def order(self, file: ColumnFile) -> np.ndarray | None:
        """See `OrderedWeight`."""
        return order_of(self._group_of(file, self.scales.shape[0]), self.scales.shape[0])

    def group_codes(self, file: ColumnFile, start: int, stop: int) -> GroupCodes:
        """See `GroupedWeight`."""
        bits = self.scheme.bits
        codes = unpacked(file.read_columns(self.codes.name, start, stop), bits, axis=0)
        zeros = unpacked(whole_tensor(file, self.zeros), bits, axis=1)[:, start:stop]
        if self.scheme.has_zeros_less_one:
            zeros = (zeros + np.uint8(1)) & np.uint8(2**bits - 1)
        return GroupCodes(codes.T, file.read_columns(self.scales.name, start, stop).T, zeros.T)

    def _group_of(self, file: ColumnFile, num_groups: int) -> np.ndarray:
        """Of each input."""
        if self.groups is None:
            return in_order(self.info.shape[1], self.group_len)
        group = whole_tensor(file, self.groups)
        if group.min() < 0 or group.max() >= num_groups:
            raise CheckpointError(f"{self.groups.name} names groups from {group.min()} to {group.max()}")
        return group
