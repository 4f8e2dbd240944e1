"""Device: `matmul` by its plain formula: the reference that every back end is compared with."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.matmul.activations import ACTIVATIONS
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
    """See `api.matmul`. Computed in float64 where `x` is (under `jax.enable_x64`), else in float32."""
    if spec.block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    real = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    weights = jnp.asarray(stack)[layer].astype(real)

    def product(part: Float[Array, "*out I"]) -> Float[Array, "T *out"]:
        return jnp.tensordot(x.astype(real), part, axes=(1, -1), precision="highest")

    if spec.activation is None:
        y = product(weights)
    else:
        y = ACTIVATIONS[spec.activation](product(weights[0])) * product(weights[1])
    if bias is not None:
        y = y + bias.astype(real)[None]
    if residual is not None:
        y = y + residual.astype(real)
    return y.astype(jnp.dtype(spec.out_dtype or x.dtype))
