"""Host: `GroupCodes`: integers with a scale for each group of inputs, and the fields that devices keep them in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.quantized_weight import Misfit

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

SCALES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class GroupCodes:
    """codes: [rows, in]. scales, zeros: [rows, groups]."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    def values(self, group: np.ndarray) -> np.ndarray:
        """scales · (codes - zeros), float32. group: of each input."""
        values = self.codes.astype(np.float32)
        values -= self.zeros.astype(np.float32)[:, group]
        values *= self.scales.astype(np.float32, copy=False)[:, group]
        return np.ascontiguousarray(values)


def group_len_of(scales: TensorInfo, num_groups: int, num_in: int, group_sizes: frozenset[int]) -> int:
    """Inputs of a group, of which the last may have fewer.

    group_sizes: those of the configuration, -1: all inputs; the number of groups says which a weight has. Empty:
    all groups have as many inputs. Raises `Misfit`.
    """
    if not group_sizes:
        if num_in % num_groups:
            raise Misfit(f"{scales.name} has {num_groups} groups, which do not divide {num_in} inputs; give group_size")
        return num_in // num_groups
    found = {max(min(size, num_in) if size > 0 else num_in, 1) for size in group_sizes}
    fitting = [size for size in found if -(-num_in // size) == num_groups]
    if len(fitting) != 1:
        sizes = " or ".join(map(str, sorted(group_sizes)))
        raise Misfit(f"{scales.name} has {num_groups} groups for {num_in} inputs, but group_size is {sizes}")
    return fitting[0]


def in_order(num_in: int, group_len: int) -> np.ndarray:
    """The group of each input, of which the last may have fewer inputs."""
    return np.arange(num_in) // group_len


def order_of(group: np.ndarray | None, num_groups: int) -> np.ndarray | None:
    """The inputs, int32, in an order in which each group's are together; None: they are so as they are.

    group: of each input. Raises `Misfit` for groups of different numbers of inputs.
    """
    if group is None:
        return None
    if (np.bincount(group, minlength=num_groups) * num_groups != len(group)).any():
        raise Misfit("its groups have different numbers of inputs")
    order = np.argsort(group, kind="stable").astype(np.int32)
    return None if (order == np.arange(len(group))).all() else order


def form_of_groups(
    bits: int, group_len: int, num_in: int, scales: TensorInfo, *, has_zeros: bool
) -> "BlockForm | None":
    """Of codes in groups of so many inputs, all of them where there are fewer; None: the last group has fewer than the
    others, or no device keeps such codes."""
    from pallas_kernels.block_forms.int_forms import int_form

    group_len = min(group_len, num_in)
    if not group_len or num_in % group_len:
        return None
    return int_form(bits, group_len, SCALES[scales.dtype], has_zeros=has_zeros)


@runtime_checkable
class OrderedWeight(Protocol):
    """One whose groups may be of any inputs."""

    def order(self, file: ColumnFile) -> np.ndarray | None:
        """See `order_of`."""
        ...


def form_in_order(weight: OrderedWeight, file: ColumnFile, form: "BlockForm | None") -> "BlockForm | None":
    """The form of a weight whose groups have this one; None: they have none."""
    from pallas_kernels.block_forms.input_orders import with_order

    try:
        order = weight.order(file)
    except Misfit:
        return None
    return form if form is None or order is None else with_order(form)


@runtime_checkable
class GroupedWeight(Protocol):
    """A `QuantizedWeight` of such codes."""

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """In which devices keep it; None: they cannot."""
        ...

    def group_codes(self, file: ColumnFile, start: int, stop: int) -> GroupCodes:
        """Those of rows `[start, stop)`."""
        ...


def fields_of(form: "BlockForm", found: GroupCodes) -> dict[str, np.ndarray]:
    """The fields of a form of `int_forms`, each [rows, groups · count], and that of zero points as devices may have
    them. Raises CheckpointError for numbers beyond."""
    from pallas_kernels.block_forms.packed_zeros import packed_zeros

    bits = sum(plane.bits for plane in form.planes)
    for values, most in ((found.codes, 2**bits - 1), (found.zeros, 2**bits - 1)):
        if values.size and not 0 <= values.min() <= values.max() <= most:
            raise CheckpointError(f"a weight has codes or zero points beyond {bits} bits: use quantization='dense'")
    fields = packed_codes(form, found.codes.astype(np.uint8))
    dtypes = {field.name: field.dtype for field in form.fields}
    fields["scales"] = found.scales.astype(np.dtype(dtypes["scales"]))
    if "zeros" in dtypes:
        fields["zeros"] = found.zeros.astype(np.uint8)
        fields |= packed_zeros(np, form, fields)
    return fields


def packed_codes(form: "BlockForm", codes: np.ndarray) -> dict[str, np.ndarray]:
    """The planes of codes [rows, in]."""
    fields: dict[str, np.ndarray] = {}
    num_rows, shift = len(codes), 0
    for plane in form.planes:
        runs = (codes >> np.uint8(shift)).reshape(num_rows, -1, 8 // plane.bits, plane.run)
        places = np.arange(0, 8, plane.bits, dtype=np.uint8)[:, None]
        own = (runs & np.uint8(2**plane.bits - 1)) << places
        fields[plane.field] = np.bitwise_or.reduce(own, axis=2).reshape(num_rows, -1)
        shift += plane.bits
    return fields
