"""Device: `matmul` as XLA's product, which is the fastest for many rows and serves every target.

Products on TPU and GPU read a layer's part of a stack in place. XLA on CPU copies it first: a decode step of SmolLM2
took 1.15 times as long at 2 and 8 rows, 1.08 times at 32. So there the layers' matrices are apart, and the product has
a branch for each layer, which holds nothing else and so adds nothing to the time of compiling.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import target_platform
from pallas_kernels.matmul.activations import apply_gate
from pallas_kernels.matmul.cpu_products import contract, cpu_product
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked


def matmul(
    x: Float[Array, "T I"],
    stack: Stacked,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
    residual: Float[Array, "T *out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.matmul`. Each product, activation and sum is rounded."""
    if spec.block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    dtype = jnp.dtype(spec.out_dtype or x.dtype)
    product = partial(_product, dtype=dtype, has_divided_columns=spec.has_divided_columns)
    if isinstance(stack, tuple):
        y = lax.switch(layer, [partial(_swapped, product, weights) for weights in stack], x)
    else:
        y = product(x, lax.dynamic_index_in_dim(stack, layer, keepdims=False))
    y = apply_gate(spec.activation, y)
    for added in (bias, residual):
        if added is not None:
            y = y + jnp.broadcast_to(added.astype(dtype), y.shape)
    return y


def _swapped(product: partial[jax.Array], weights: jax.Array, x: jax.Array) -> jax.Array:
    return product(x, weights)


def _product(
    x: Float[Array, "T I"], w: Float[Array, "*out I"], *, dtype: jnp.dtype, has_divided_columns: bool
) -> Float[Array, "T *out"]:
    # One product also for a gate and the other half: of a layer's weights that two products read, XLA on TPU7x and on
    # GPU makes a copy first. Merged with the axes before it, a divided axis would make the devices exchange weights.
    # Elsewhere one output axis is better: XLA on CPU copies weights with three axes (62 ms instead of 20 a step).
    rows = w if has_divided_columns else w.reshape(-1, w.shape[-1])
    multiply = cpu_product if target_platform() == "cpu" else contract
    return multiply(x, rows, dtype).reshape(x.shape[0], *w.shape[:-1])
