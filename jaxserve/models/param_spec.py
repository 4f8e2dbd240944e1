"""Device: `ParamSpec`, the declaration of one parameter, and `LayerSpecs`, of those of layers with one shape."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from pallas_kernels.qtensor import QTensor, Scheme

RANDOM_CODES = 42.0  # standard deviation of random codes: a third of the largest


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


def packed(spec: ParamSpec, scheme: Scheme | None) -> ParamSpec | QTensor:
    """A matrix as a scheme codes it; None: as it is."""
    if scheme is None:
        return spec
    codes = ParamSpec(spec.shape, spec.axes, jnp.int8, RANDOM_CODES)
    scales = ParamSpec(spec.shape[:-1], spec.axes[:-1], jnp.float32, spec.shape[-1] ** -0.5 / RANDOM_CODES)
    return QTensor(codes, scales, scheme, jnp.dtype(spec.dtype).name)


@dataclass(frozen=True, slots=True)
class LayerSpecs:
    """Declares a parameter of `num_layers` layers, by its shape in one of them.

    has_tuples: matrices are an array for each layer (`pallas_kernels/matmul/xla.py` says why); else they are one array,
    like all others. scheme: by which matrices are coded; None: they are dense.
    """

    num_layers: int
    dtype: Any
    has_tuples: bool
    scheme: Scheme | None = None

    def norm(self, *shape: int) -> ParamSpec:
        return norm(self.num_layers, *shape)

    def bias(self, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec:
        return matrix(self.num_layers, *shape, axes=(None, *axes), dtype=self.dtype)

    def matrix(self, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec | tuple[ParamSpec, ...] | QTensor:
        of_layer = packed(matrix(*shape, axes=axes, dtype=self.dtype), self.scheme)
        if isinstance(of_layer, QTensor):
            return replace(of_layer, codes=self._of_all(of_layer.codes), scales=self._stacked(of_layer.scales))
        return self._of_all(of_layer)

    def _of_all(self, spec: ParamSpec) -> ParamSpec | tuple[ParamSpec, ...]:
        return (spec,) * self.num_layers if self.has_tuples else self._stacked(spec)

    def _stacked(self, spec: ParamSpec) -> ParamSpec:
        return replace(spec, shape=(self.num_layers, *spec.shape), axes=(None, *spec.axes))
