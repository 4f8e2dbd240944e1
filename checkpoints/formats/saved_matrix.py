"""Device: `SavedMatrix`: a packed matrix in an Orbax folder: its form, and the names of its arrays.

rows of codes     down.codes  down.scales  (down.outliers  down.columns)          key: "int8", "w8a8-o16", "fp8"
blocks            down.fields.<field>, …  (down.order)                            key: `form_keys.key_of`
parts of rows     qkv.parts.<i>.fields.<field>, …                                 a list of keys
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.outlier_columns import check_outlier_columns
from checkpoints.formats.saved_form_keys import Form, form_of_keys
from checkpoints.formats.tensor_file import TensorInfo
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor

Wanted = tuple[TensorInfo, tuple[int, ...], tuple[str, ...]]
"""An array, its shape, and the dtypes of which it must have one."""
_tree: Any = jax.tree  # whose structures have no types


@dataclass(frozen=True, slots=True)
class SavedMatrix:
    """shape: of its values. names: those of its arrays, in place of these in a `QTensor`, `BlockTensor` or `RowParts`
    (of values in float32). part_shapes: of the parts of its rows, if these have forms of their own."""

    form: Form
    shape: tuple[int, ...]
    names: Any
    part_shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def arrays(self) -> list[str]:
        """The names of its arrays."""
        return _tree.leaves(self.names)

    @property
    def form_name(self) -> str:
        """For messages and reports."""
        forms = self.form if isinstance(self.form, tuple) else (self.form,)
        return ", ".join(sorted({form.name for form in forms}))

    def of(self, arrays: Mapping[str, Any]) -> Any:
        """The matrix of these arrays."""
        return _tree.map(arrays.__getitem__, self.names)

    def checked(self, where: str, arrays: Mapping[str, Any]) -> Any:
        """The same. Raises `CheckpointError` for an order that has not all inputs once, or for columns of outliers that
        are not ascending."""
        for name in self.arrays:
            values, num_in = arrays[name], self.shape[-1]
            if name.endswith(".order") and not np.array_equal(np.sort(np.asarray(values)), np.arange(num_in)):
                raise CheckpointError(f"{where}: {name} must have each of {num_in} inputs once")
            if name.endswith(".columns"):
                check_outlier_columns(f"{where}: {name}", np.asarray(values), num_in)
        return self.of(arrays)


def read_matrix(where: str, name: str, keys: Any, arrays: Mapping[str, TensorInfo]) -> SavedMatrix:
    """The matrix of this name in a part with these arrays. Raises `CheckpointError`, which begins with `where`."""
    form = form_of_keys(where, keys)
    names = _names(name, form)
    for array in _tree.leaves(names):
        if array not in arrays:
            raise CheckpointError(f"{where} has no array {array}")
    infos: Any = _tree.map(arrays.__getitem__, names)
    if isinstance(infos, RowParts):
        shapes = tuple(_shape_of_blocks(where, part) for part in infos.parts)
        *lead, _, num_in = shapes[0]
        if any(len(shape) != 3 or [shape[0], shape[2]] != [*lead, num_in] for shape in shapes):
            raise CheckpointError(f"{where} has parts of the shapes {shapes}, which are not rows of one matrix")
        return SavedMatrix(form, (*lead, sum(shape[1] for shape in shapes), num_in), names, shapes)
    shape = _shape_of_rows(where, infos) if isinstance(infos, QTensor) else _shape_of_blocks(where, infos)
    return SavedMatrix(form, shape, names)


def _names(name: str, form: Form) -> Any:
    if isinstance(form, tuple):
        return RowParts(tuple(_names(f"{name}.parts.{i}", part) for i, part in enumerate(form)))
    if isinstance(form, BlockForm):
        fields = {field.name: f"{name}.fields.{field.name}" for field in form.fields}
        return BlockTensor(fields, form, "float32", f"{name}.order" if form.has_order else None)
    apart = (f"{name}.outliers", f"{name}.columns") if form.num_outliers else (None, None)
    return QTensor(f"{name}.codes", f"{name}.scales", form, "float32", *apart)


def _shape_of_rows(where: str, infos: QTensor) -> tuple[int, ...]:
    shape, count = infos.codes.shape, infos.scheme.num_outliers
    wanted: list[Wanted] = [(infos.codes, shape, (infos.scheme.codes,)), (infos.scales, shape[:-1], ("float32",))]
    if count:
        wanted.append((infos.outliers, (*shape[:-1], count), ("float32", "bfloat16")))
        wanted.append((infos.columns, (count,), ("int32",)))
    return _checked(where, shape, wanted)


def _shape_of_blocks(where: str, infos: BlockTensor) -> tuple[int, ...]:
    first, form = infos.fields[infos.form.fields[0].name], infos.form
    num_blocks = first.shape[-1] // form.fields[0].count if first.shape else 0
    out = first.shape[:-1]
    wanted: list[Wanted] = [(infos.fields[f.name], (*out, num_blocks * f.count), (f.dtype,)) for f in form.fields]
    shape = (*out, num_blocks * form.block_len)
    if infos.order is not None:
        wanted.append((infos.order, shape[-1:], ("int32",)))
    return _checked(where, shape, wanted)


def _checked(where: str, shape: tuple[int, ...], wanted: Sequence[Wanted]) -> tuple[int, ...]:
    """The shape of a matrix, whose arrays are as they are wanted."""
    if len(shape) not in (2, 3):
        raise CheckpointError(f"{where} has the shape {list(shape)}; it must have two or three axes")
    for info, own, dtypes in wanted:
        if info.shape != own or info.dtype not in dtypes:
            name, found = info.name.partition("/")[2], f"{info.dtype}{list(info.shape)}"
            raise CheckpointError(f"{where}: {name} is {found}, and its form needs {' or '.join(dtypes)}{list(own)}")
    return shape
