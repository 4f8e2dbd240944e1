"""Device: `ParamSpec`, the declaration of one parameter, and `LayerSpecs`, of those of layers with one shape."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp


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


@dataclass(frozen=True, slots=True)
class LayerSpecs:
    """Declares a parameter of `num_layers` layers, by its shape in one of them.

    has_tuples: matrices are an array for each layer (`pallas_kernels/matmul/xla.py` says why); else they are one array,
    like all others.
    """

    num_layers: int
    dtype: Any
    has_tuples: bool

    def norm(self, *shape: int) -> ParamSpec:
        return norm(self.num_layers, *shape)

    def bias(self, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec:
        return matrix(self.num_layers, *shape, axes=(None, *axes), dtype=self.dtype)

    def matrix(self, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec | tuple[ParamSpec, ...]:
        if self.has_tuples:
            return (matrix(*shape, axes=axes, dtype=self.dtype),) * self.num_layers
        return matrix(self.num_layers, *shape, axes=(None, *axes), dtype=self.dtype)
