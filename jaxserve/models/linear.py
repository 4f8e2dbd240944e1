"""Device: `Linear`, the product of activations with one matrix of the model: of a layer, or the head.

The matrices of a stack of layers are either one array or a tuple of arrays, one per layer (`param_spec.LayerSpecs`;
`pallas_kernels/matmul/xla.py` says why). `at_layer` names one layer's of either: nothing is taken from the stack before
the product, which may read it in place.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.matmul.activations import apply_gate
from pallas_kernels.matmul.api import matmul
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.table_rows.api import table_rows

Packed = QTensor | BlockTensor


class OfLayer(NamedTuple):
    """One layer's part of a stack."""

    stack: Stacked | Packed
    layer: Int[Array, ""]


Weights = Mapping[str, Any]
"""A layer's parameters by name: matrices as `OfLayer`, vectors as arrays."""


def at_layer(stack: Stacked | Packed | RowParts, layer: Int[Array, ""]) -> "OfLayer | Segments | jax.Array":
    """One layer's part: of a stack of vectors an array."""
    if isinstance(stack, RowParts):
        return Segments(tuple(OfLayer(part, layer) for part in stack.parts), axis=1)
    if isinstance(stack, tuple | Packed) or stack.ndim > 2:
        return OfLayer(stack, layer)
    return lax.dynamic_index_in_dim(stack, layer, keepdims=False)


def whole(weight: jax.Array | Packed) -> OfLayer:
    """A matrix that is no layer's."""
    if isinstance(weight, QTensor):
        return OfLayer(replace(weight, codes=(weight.codes,), scales=weight.scales[None]), jnp.int32(0))
    if isinstance(weight, BlockTensor):
        return OfLayer(replace(weight, fields={name: (field,) for name, field in weight.fields.items()}), jnp.int32(0))
    return OfLayer((weight,), jnp.int32(0))


def rows_of(
    weight: Float[Array, "V D"] | Packed, index: Int[Array, "T"], *, is_multiplied: bool = False
) -> Float[Array, "T D"]:
    """Rows of a matrix that is no layer's; indices lie within it. is_multiplied: as a head, too."""

    def taken(table: jax.Array) -> jax.Array:
        return table.at[index].get(mode="promise_in_bounds")

    if isinstance(weight, BlockTensor):
        rows = table_rows(tuple(weight.fields.values()), index, are_multiplied=is_multiplied)
        return weight.form.decode(dict(zip(weight.fields, rows, strict=True)), weight.dtype)
    if not isinstance(weight, QTensor):
        return taken(weight)
    return (taken(weight.codes).astype(jnp.float32) * taken(weight.scales)[:, None]).astype(weight.dtype)


Observer = Callable[["OfLayer | Segments", jax.Array], None]
_observer = ContextVar[Observer | None]("observer", default=None)


@contextmanager
def observing(observe: Observer) -> Generator[None]:
    """While products are traced in this block, `observe` is called with the weight and the input of each: what
    calibration sees of a model."""
    token = _observer.set(observe)
    try:
        yield
    finally:
        _observer.reset(token)


class Segments(NamedTuple):
    """Matrices [*out_i, in] whose outputs lie side by side, such as queries and values that are stored differently.

    axis: the one of the output axes in which they may have different sizes.
    """

    matrices: tuple[OfLayer, ...]
    axis: int


class Linear(NamedTuple):
    """y = x · weightᵀ + bias + adapter(x), or with an activation y[:, 0]'s activation times y[:, 1].

    weight: [*out, in]. bias: [*out], a part of a stack that is one array. activation: of a gate, a name in
    `pallas_kernels.matmul.activations`. adapter: [T, in] -> [T, *out], what the rows' adapters add (LoRA, arXiv
    2106.09685). divided_axis: of [*out, in], the one that is divided over devices; -1: the inputs, and the sums of
    devices are added in float32.
    """

    weight: OfLayer | Segments
    bias: OfLayer | None = None
    activation: str | None = None
    adapter: Callable[[jax.Array], jax.Array] | None = None
    divided_axis: int | None = None

    def __call__(self, x: Float[Array, "T I"]) -> Float[Array, "T *out"]:
        """The product, accumulated in float32, in the activations' dtype."""
        # A product that gives float32 would write twice the bytes, and another operation read them.
        return self.in_dtype(x, jnp.float32).astype(x.dtype) if self.divided_axis == -1 else self.in_dtype(x, x.dtype)

    def in_dtype(self, x: Float[Array, "T I"], dtype: Any) -> Float[Array, "T *out"]:
        """The same in another dtype."""
        if (observe := _observer.get()) is not None:
            observe(self.weight, x)
        bias = None if self.bias is None else lax.dynamic_index_in_dim(*self.bias, keepdims=False)
        if isinstance(self.weight, OfLayer) and self.adapter is None:
            return _product(x, self.weight, self._spec(self.activation, dtype), bias)
        matrices, axis = self.weight if isinstance(self.weight, Segments) else ((self.weight,), 0)
        spec = self._spec(None, dtype)
        y = jnp.concatenate([_product(x, matrix, spec, None) for matrix in matrices], axis + 1)
        if self.adapter is not None and self.divided_axis == -1:
            # As without adapters: else the devices exchange the sums in float32, twice the bytes (4.2 MB a step of
            # 8 rows of Llama 3 8B). Without the barrier XLA leaves the rounding out.
            y = lax.optimization_barrier(y.astype(x.dtype)).astype(dtype)
        for added in (bias, self.adapter and self.adapter(x)):
            if added is not None:
                y = y + jnp.broadcast_to(added.astype(dtype), y.shape)
        return apply_gate(self.activation, y)

    def _spec(self, activation: str | None, dtype: Any) -> MatmulSpec:
        return MatmulSpec(activation, jnp.dtype(dtype), self.divided_axis)


def _product(x: jax.Array, matrix: OfLayer, spec: MatmulSpec, bias: jax.Array | None) -> jax.Array:
    if isinstance(matrix.stack, Packed):
        return quant_matmul(x, matrix.stack, matrix.layer, spec, bias=bias)
    return matmul(x, matrix.stack, matrix.layer, spec, bias=bias)
