"""Device: `Linear`, the product of activations with one matrix of the model: of a layer, or the head.

The matrices of a stack of layers are either one array or a tuple of arrays, one per layer (`param_spec.LayerSpecs`);
`at_layer` takes one layer's of either. Products on TPU and GPU read a layer's part of an array in place. XLA on CPU
copies it first: a decode step of SmolLM2 took 1.15 times as long at 2 and 8 rows, 1.08 times at 32. So there the arrays
stay apart, and a product has a branch for each layer, which holds only the product and so adds nothing to the time of
compiling.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Stacked = jax.Array | tuple[jax.Array, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several matrices of the same shape, by an index that is known on the device only."""

    matrices: tuple[jax.Array, ...]
    index: Int[Array, ""]


Matrix = jax.Array | OneOf
Weights = Mapping[str, Any]
"""A layer's parameters by name: matrices as `Matrix`, others as arrays."""


def at_layer(stack: Stacked, index: Int[Array, ""]) -> Matrix:
    """The array of one layer."""
    if isinstance(stack, tuple):
        return OneOf(stack, index)
    return lax.dynamic_index_in_dim(stack, index, keepdims=False)


class Linear(NamedTuple):
    """x · weightᵀ + bias.

    weight: [*out, in]. bias: [*out]. has_divided_columns: an output axis other than the first is divided over devices.
    has_divided_rows: the input axis is, and the devices' sums are added in float32.
    """

    weight: Matrix
    bias: jax.Array | None = None
    has_divided_columns: bool = False
    has_divided_rows: bool = False

    def __call__(self, x: Float[Array, "T I"]) -> Float[Array, "T *out"]:
        """The product, accumulated in float32, in the activations' dtype."""
        # A product that gives float32 would write twice the bytes, and another operation read them.
        y = self.in_float32(x).astype(x.dtype) if self.has_divided_rows else self._multiply(x, x.dtype)
        return y if self.bias is None else y + self.bias[None]

    def in_float32(self, x: Float[Array, "T I"]) -> Float[Array, "T *out"]:
        """The product without the bias, as accumulated."""
        return self._multiply(x, jnp.float32)

    def _multiply(self, x: jax.Array, dtype: Any) -> jax.Array:
        multiply = partial(_product, dtype=dtype, has_divided_columns=self.has_divided_columns)
        if isinstance(self.weight, OneOf):
            branches = [partial(_swapped, multiply, matrix) for matrix in self.weight.matrices]
            return lax.switch(self.weight.index, branches, x)
        return multiply(x, self.weight)


def _swapped(multiply: partial[jax.Array], matrix: jax.Array, x: jax.Array) -> jax.Array:
    return multiply(x, matrix)


def _product(
    x: Float[Array, "T I"], w: Float[Array, "*out I"], *, dtype: Any, has_divided_columns: bool
) -> Float[Array, "T *out"]:
    # Merged with the axes before it, a divided axis would make the devices exchange the weights. Elsewhere one output
    # axis is better: XLA on CPU copies weights with three axes before the product (62 ms instead of 20 a step).
    rows = w if has_divided_columns else w.reshape(-1, w.shape[-1])
    # float32 operands need the highest precision: otherwise TPUs and GPUs round them.
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    dims = (((1,), (rows.ndim - 1,)), ((), ()))
    y = lax.dot_general(x, rows, dims, precision=precision, preferred_element_type=dtype)
    return y.reshape(x.shape[0], *w.shape[:-1])
