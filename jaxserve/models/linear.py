"""Device: `Linear`, the product of activations with one matrix of the model: of a layer, or the head.

The matrices of a stack of layers are either one array or a tuple of arrays, one per layer (`param_spec.LayerSpecs`;
`pallas_kernels/matmul/xla.py` says why). `at_layer` names one layer's of either: nothing is taken from the stack before
the product, which may read it in place.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.matmul.api import matmul
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked


class OfLayer(NamedTuple):
    """One layer's part of a stack."""

    stack: Stacked
    layer: Int[Array, ""]


Weights = Mapping[str, Any]
"""A layer's parameters by name: matrices as `OfLayer`, vectors as arrays."""


def at_layer(stack: Stacked, layer: Int[Array, ""]) -> OfLayer | jax.Array:
    """One layer's part: of a stack of vectors an array."""
    if isinstance(stack, tuple) or stack.ndim > 2:
        return OfLayer(stack, layer)
    return lax.dynamic_index_in_dim(stack, layer, keepdims=False)


def whole(weight: jax.Array) -> OfLayer:
    """A matrix that is no layer's."""
    return OfLayer((weight,), jnp.int32(0))


class Linear(NamedTuple):
    """x · weightᵀ + bias, or activation(x · weight[0]ᵀ) · (x · weight[1]ᵀ).

    weight: [*out, in]. bias: [*out], a part of a stack that is one array. activation: of a gate, a name in
    `pallas_kernels.matmul.activations`. has_divided_columns: an output axis other than the first is divided over
    devices. has_divided_rows: the input axis is, and the devices' sums are added in float32.
    """

    weight: OfLayer
    bias: OfLayer | None = None
    activation: str | None = None
    has_divided_columns: bool = False
    has_divided_rows: bool = False

    def __call__(self, x: Float[Array, "T I"]) -> Float[Array, "T *out"]:
        """The product, accumulated in float32, in the activations' dtype."""
        # A product that gives float32 would write twice the bytes, and another operation read them.
        return self.in_dtype(x, jnp.float32).astype(x.dtype) if self.has_divided_rows else self.in_dtype(x, x.dtype)

    def in_dtype(self, x: Float[Array, "T I"], dtype: Any) -> Float[Array, "T *out"]:
        """The same in another dtype."""
        spec = MatmulSpec(self.activation, jnp.dtype(dtype), self.has_divided_columns)
        bias = None if self.bias is None else lax.dynamic_index_in_dim(*self.bias, keepdims=False)
        return matmul(x, *self.weight, spec, bias=bias)
