"""Device: `matmul` as XLA's product, which is the fastest for many rows and serves every target."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.matmul.activations import ACTIVATIONS
from pallas_kernels.matmul.matmul_spec import MatmulSpec


def matmul(
    x: Float[Array, "T I"],
    stack: Float[Array, "L *parts O I"],
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "O"] | None,
    residual: Float[Array, "T O"] | None,
) -> Float[Array, "T O"]:
    """See `api.matmul`. Rounds as `jaxserve.models.linear` and `gated_mlp` do: each product, activation and sum."""
    if spec.block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    weights = lax.dynamic_index_in_dim(stack, layer, keepdims=False)
    num_columns, num_inputs = weights.shape[-2:]
    # float32 operands need the highest precision: otherwise TPUs and GPUs round them.
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    dtype = jnp.dtype(spec.out_dtype or x.dtype)
    # One product, also with a gate: of a layer's weights that two products read, XLA on GPU makes a copy first.
    rows, dims = weights.reshape(-1, num_inputs), (((1,), (1,)), ((), ()))
    y = lax.dot_general(x, rows, dims, precision=precision, preferred_element_type=dtype)
    if spec.activation is not None:
        gate, up = y[:, :num_columns], y[:, num_columns:]
        y = ACTIVATIONS[spec.activation](gate.astype(jnp.float32)).astype(dtype) * up
    if bias is not None:
        y = y + bias.astype(dtype)[None]
    return y if residual is None else y + residual.astype(dtype)
