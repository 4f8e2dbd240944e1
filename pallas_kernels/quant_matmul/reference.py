"""Device: `quant_matmul` by its plain formula: the reference that every back end is compared with."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.activations import ACTIVATIONS
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import QTensor, Scheme
from pallas_kernels.quant_matmul.coded_tokens import code_tokens


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`. Computed in float64 where `x` is (under `jax.enable_x64`), else in float32."""
    real = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    weights, inputs, added = _decoded(stack, layer, real), x.astype(real), None
    if isinstance(stack, QTensor) and stack.columns is not None:
        columns = stack.columns[layer]
        added = _product(inputs.at[:, columns].get(mode="fill", fill_value=0), stack.outliers[layer].astype(real))
        inputs = inputs.at[:, columns].set(0, mode="drop")
    if isinstance(stack, QTensor) and stack.scheme.has_coded_inputs:
        inputs = _coded(inputs, stack.scheme)
    y = _product(inputs, weights)
    if added is not None:
        y = y + added
    if spec.activation is not None:
        y = ACTIVATIONS[spec.activation](y[:, 0]) * y[:, 1]
    if bias is not None:
        y = y + bias.astype(real)[None]
    return y.astype(jnp.dtype(spec.out_dtype or x.dtype))


def _product(inputs: Float[Array, "T I"], weights: Float[Array, "*out I"]) -> Float[Array, "T *out"]:
    return jnp.tensordot(inputs, weights, axes=(1, -1), precision="highest")


def _decoded(stack: QTensor | BlockTensor, layer: jax.Array, real: Any) -> Float[Array, "*out I"]:
    if isinstance(stack, BlockTensor):
        return stack.form.decode({name: jnp.asarray(field)[layer] for name, field in stack.fields.items()}, real)
    return jnp.asarray(stack.codes)[layer].astype(real) * stack.scales[layer].astype(real)[..., None]


def _coded(inputs: Float[Array, "T I"], scheme: Scheme) -> Float[Array, "T I"]:
    """What the codes stand for."""
    if scheme.codes != "int8":
        # Halfway between two codes, of which there are few, a float32 and a float64 may be rounded apart.
        codes, scales = code_tokens(inputs, 1, scheme)
        return codes.astype(inputs.dtype) * scales[:, None].astype(inputs.dtype)
    scales = jnp.max(jnp.abs(inputs), axis=1, keepdims=True) / scheme.largest
    return jnp.round(inputs / jnp.where(scales > 0, scales, jnp.ones_like(scales))) * scales
