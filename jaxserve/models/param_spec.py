"""Device: `ParamSpec`, the declaration of one parameter, and `LayerSpecs`, of those of layers with one shape."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from jaxserve.models.packing import DENSE, Form, Packing
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor

RANDOM_CODES = 42.0  # standard deviation of random codes: of int8 a third of the largest


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter: shape, logical axes, dtype, and the scale of its random values (None: all ones)."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    dtype: Any
    init_scale: float | None

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * jnp.dtype(self.dtype).itemsize


def norm(*shape: int) -> ParamSpec:
    """Weights of RMSNorms, which stay float32."""
    return ParamSpec(shape, (None,) * len(shape), jnp.float32, None)


def matrix(*shape: int, axes: tuple[str | None, ...], dtype: Any) -> ParamSpec:
    return ParamSpec(shape, axes, dtype, shape[-1] ** -0.5)


Matrix = ParamSpec | QTensor | BlockTensor | RowParts
"""A matrix, or the declarations of the fields that it is packed in."""


def packed(spec: ParamSpec, form: Form | None, parts: tuple[int, ...] = ()) -> Matrix:
    """A matrix in a form; None: as it is. parts: into so many rows it may be divided, each with a form of its own."""
    if form is None:
        return spec
    if isinstance(form, BlockForm):
        return _of_blocks(spec, form)
    if isinstance(form, tuple):
        *lead, _, num_inputs = spec.shape
        rows = [replace(spec, shape=(*lead, num_rows, num_inputs)) for num_rows in parts]
        return RowParts(tuple(map(_of_blocks, rows, form)))
    codes = ParamSpec(spec.shape, spec.axes, jnp.dtype(form.codes), RANDOM_CODES)
    scales = ParamSpec(spec.shape[:-1], spec.axes[:-1], jnp.float32, spec.shape[-1] ** -0.5 / RANDOM_CODES)
    outliers = columns = None
    if form.num_outliers:
        outliers = replace(spec, shape=(*spec.shape[:-1], form.num_outliers), axes=(*spec.axes[:-1], None))
        columns = ParamSpec((form.num_outliers,), (None,), jnp.int32, 0.0)
    return QTensor(codes, scales, form, jnp.dtype(spec.dtype).name, outliers, columns)


def decoded_spec(leaf: Matrix) -> ParamSpec:
    """One with the shape and the axes of a matrix's values."""
    if isinstance(leaf, BlockTensor):
        spec = leaf.fields[leaf.form.fields[0].name]
        *out, num_values = spec.shape
        return replace(spec, shape=(*out, leaf.form.num_inputs(num_values)))
    if isinstance(leaf, RowParts):
        parts = [decoded_spec(part) for part in leaf.parts]
        *lead, _, num_inputs = parts[0].shape
        return replace(parts[0], shape=(*lead, sum(part.shape[-2] for part in parts), num_inputs))
    return leaf.codes if isinstance(leaf, QTensor) else leaf


@dataclass(frozen=True, slots=True)
class LayerSpecs:
    """Declares a parameter of `num_layers` layers, by its shape in one of them.

    has_tuples: matrices are an array for each layer (`pallas_kernels/matmul/xla.py` says why); else they are one array,
    like all others. packing: of the model. stack: the name of the layers' tree of parameters.
    """

    num_layers: int
    dtype: Any
    has_tuples: bool
    packing: Packing = DENSE
    stack: str = ""

    def norm(self, *shape: int) -> ParamSpec:
        return norm(self.num_layers, *shape)

    def bias(self, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec:
        return matrix(self.num_layers, *shape, axes=(None, *axes), dtype=self.dtype)

    def matrix(
        self, name: str, *shape: int, axes: tuple[str | None, ...], parts: tuple[int, ...] = ()
    ) -> Matrix | tuple[ParamSpec, ...]:
        """parts: rows of the parts that the matrix is put together of; see `packed`."""
        form = self.packing.of(f"layers/{self.stack}/{name}")
        return self._of_stack(packed(matrix(*shape, axes=axes, dtype=self.dtype), form, parts))

    def _of_stack(self, of_layer: Matrix) -> Matrix | tuple[ParamSpec, ...]:
        if isinstance(of_layer, RowParts):
            return RowParts(tuple(self._of_blocks(part) for part in of_layer.parts))
        if isinstance(of_layer, BlockTensor):
            return self._of_blocks(of_layer)
        if isinstance(of_layer, QTensor):
            return self._of_rows(of_layer)
        return self._of_all(of_layer)

    def _of_rows(self, of_layer: QTensor) -> QTensor:
        coded = replace(of_layer, codes=self._of_all(of_layer.codes), scales=self._stacked(of_layer.scales))
        if of_layer.columns is None:
            return coded
        return replace(coded, outliers=self._stacked(of_layer.outliers), columns=self._stacked(of_layer.columns))

    def _of_blocks(self, of_layer: BlockTensor) -> BlockTensor:
        order = None if of_layer.order is None else self._stacked(of_layer.order)
        fields = {name: self._of_all(field) for name, field in of_layer.fields.items()}
        return replace(of_layer, fields=fields, order=order)

    def _of_all(self, spec: ParamSpec) -> ParamSpec | tuple[ParamSpec, ...]:
        return (spec,) * self.num_layers if self.has_tuples else self._stacked(spec)

    def _stacked(self, spec: ParamSpec) -> ParamSpec:
        return replace(spec, shape=(self.num_layers, *spec.shape), axes=(None, *spec.axes))


def _of_blocks(spec: ParamSpec, form: BlockForm) -> BlockTensor:
    *out, num_inputs = spec.shape
    # Random fields make random values of any size: they serve to measure times.
    fields = {
        field.name: ParamSpec((*out, num_inputs // form.block_len * field.count), spec.axes, field.dtype, 1e-3)
        for field in form.fields
    }
    order = ParamSpec((num_inputs,), (None,), jnp.int32, 0.0) if form.has_order else None
    return BlockTensor(fields, form, jnp.dtype(spec.dtype).name, order)
