"""Device: converts packed matrices of one layer between their saved form, which but for double quantization is the same
for every mesh and every kind of device (`form_changes.py`), and the form that devices need; see `canonical.py`.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Shaped

from checkpoints.formats.saved_matrix import SavedMatrix
from checkpoints.mapping.canonical import narrow, widen
from checkpoints.mapping.row_parts import part_shapes
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.float_forms import float_form
from pallas_kernels.block_forms.form_changes import device_fields, saved_fields, saved_form
from pallas_kernels.block_forms.table_forms import SCALE_DTYPES, in_shares, without_nesting
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.packed_values import packed_values
from pallas_kernels.qtensor import FP8, QTensor

Matrix = Shaped[Array, "..."] | QTensor | BlockTensor | RowParts


def can_be(saved: SavedMatrix | None, struct: Any) -> bool:
    """Whether `from_saved` makes a leaf like `struct` of what a folder has (None: one array): of anything a leaf that
    is not packed."""
    form = None if saved is None else saved.form
    if isinstance(struct, RowParts):
        if not isinstance(form, tuple) or len(form) != len(struct.parts):
            return False
        return all(map(_can_be_blocks, form, struct.parts))
    if isinstance(struct, BlockTensor):
        if saved is not None and form == FP8:
            form = form_of_fp8_rows(saved.shape[-1])
        return _can_be_blocks(form, struct)
    return not isinstance(struct, QTensor) or form == struct.scheme


def _can_be_blocks(form: Any, struct: BlockTensor) -> bool:
    if not isinstance(form, BlockForm):
        return False
    numbers = (without_nesting(form, dtype) for dtype in SCALE_DTYPES)
    return saved_form(struct.form) in (form, in_shares(form, struct.form.block_len), *numbers)


def to_saved(leaf: Matrix, shape: tuple[int, ...], head_dim: int) -> Matrix:
    """A leaf of one layer in its saved form. shape: of its values, in that form."""
    if isinstance(leaf, RowParts):
        parts = zip(leaf.parts, part_shapes(shape, head_dim), strict=True)
        return RowParts(tuple(_blocks_to_saved(part, own, head_dim) for part, own in parts))
    if isinstance(leaf, BlockTensor):
        return _blocks_to_saved(leaf, shape, head_dim)
    if isinstance(leaf, QTensor):
        codes, scales = narrow(leaf.codes, shape, head_dim), narrow(leaf.scales, shape[:-1], head_dim)
        if leaf.outliers is None:
            return replace(leaf, codes=codes, scales=scales)
        outliers = narrow(leaf.outliers, (*shape[:-1], leaf.outliers.shape[-1]), head_dim)
        return replace(leaf, codes=codes, scales=scales, outliers=outliers)
    return narrow(leaf, shape, head_dim)


def _blocks_to_saved(leaf: BlockTensor, shape: tuple[int, ...], head_dim: int) -> BlockTensor:
    form = saved_form(leaf.form)
    fields = {
        name: narrow(values, (*shape[:-1], values.shape[-1]), head_dim)
        for name, values in saved_fields(leaf.form, leaf.fields).items()
    }
    return replace(leaf, form=form, fields=fields)


def from_saved(saved: Matrix, struct: Any, head_dim: int) -> Matrix:
    """The inverse, as devices have it. struct: a leaf of one layer, of `jax.ShapeDtypeStruct`s; where it is not packed,
    values are decoded."""
    if isinstance(struct, RowParts):
        assert isinstance(saved, RowParts)
        parts = zip(saved.parts, struct.parts, strict=True)
        return RowParts(tuple(_blocks_from_saved(part, own, head_dim) for part, own in parts))
    if isinstance(struct, BlockTensor):
        blocks = _as_blocks(saved) if isinstance(saved, QTensor) else saved
        assert isinstance(blocks, BlockTensor)
        return _blocks_from_saved(blocks, struct, head_dim)
    if isinstance(struct, QTensor):
        assert isinstance(saved, QTensor)
        rows = {
            name: widen(getattr(saved, name), getattr(struct, name).shape, head_dim) for name in ("codes", "scales")
        }
        if struct.outliers is None:
            return replace(struct, **rows)
        outliers = widen(saved.outliers, struct.outliers.shape, head_dim).astype(struct.outliers.dtype)
        return replace(struct, **rows, outliers=outliers, columns=saved.columns)
    values = packed_values(saved) if isinstance(saved, QTensor | BlockTensor | RowParts) else saved
    return widen(values, struct.shape, head_dim).astype(struct.dtype)


def _blocks_from_saved(saved: BlockTensor, struct: BlockTensor, head_dim: int) -> BlockTensor:
    fields = {
        name: widen(values, struct.fields[name].shape, head_dim)
        for name, values in device_fields(saved.form, saved.fields, struct.form).items()
    }
    return replace(struct, fields=fields, order=saved.order)


def _as_blocks(rows: QTensor) -> BlockTensor:
    """Rows of FP8 codes on devices that do not multiply these, where each is one block."""
    assert rows.scheme == FP8
    fields = {"codes": rows.codes, "scales": rows.scales[..., None]}
    return BlockTensor(fields, form_of_fp8_rows(rows.codes.shape[-1]), jnp.dtype(rows.dtype).name)


def form_of_fp8_rows(num_inputs: int) -> BlockForm:
    """The form of blocks that are rows of FP8 codes."""
    return float_form(FP8.codes, num_inputs, "float32")
