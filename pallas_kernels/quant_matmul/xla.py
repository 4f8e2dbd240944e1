"""Device: `quant_matmul` as XLA's products, of integers, or of codes that are widened as they are read.

XLA on TPU widens codes while it reads them. On CPU and GPU it would write widened ones to memory first (five times the
bytes, jaxlib 0.11.2), but multiplies integers faster than floats: there activations of any scheme are coded, in as many
parts as they have precision (`coded_tokens.py`). On CPU the layers' arrays are apart, as for `matmul`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import target_platform
from pallas_kernels.matmul.activations import apply_gate
from pallas_kernels.matmul.cpu_products import F32, contract, cpu_product
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.block_rows import block_product
from pallas_kernels.quant_matmul.coded_tokens import FINER, code_tokens

NUM_PARTS = {jnp.dtype(jnp.float32): 3}
"""By the activations' dtype; others have 2, which leaves 1 / 64,000 of a token's largest value."""


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`. Products are scaled in float32; activation and bias are rounded, as in `matmul`."""
    if spec.block is not None:
        raise NotImplementedError("it has no blocks: pass block=None")
    dtype = jnp.dtype(spec.out_dtype or x.dtype)
    if isinstance(stack, BlockTensor):
        y = block_product(x, stack, layer, spec, dtype)
    else:
        y = _row_product(x, stack, layer, spec).astype(dtype)
    if spec.activation is not None and target_platform() == "cpu":
        # XLA would compute the scaled sums in the activation's loop: 204 us for 32 rows of SmolLM2, not 56.
        y = lax.optimization_barrier(y)
    y = apply_gate(spec.activation, y)
    return y if bias is None else y + jnp.broadcast_to(bias.astype(dtype), y.shape)


def _row_product(x: jax.Array, stack: QTensor, layer: jax.Array, spec: MatmulSpec) -> Float[Array, "T *out"]:
    if stack.columns is None:
        return _coded_product(x, stack, layer, spec)
    columns, weights = (
        lax.dynamic_index_in_dim(field, layer, keepdims=False) for field in (stack.columns, stack.outliers)
    )
    # Compared, not scattered: so devices that divide the inputs each change their own.
    is_outlier = (jnp.arange(x.shape[1], dtype=columns.dtype)[:, None] == columns[None]).any(axis=1)
    outlying = x.at[:, columns].get(mode="fill", fill_value=0)
    if target_platform() == "cpu":  # where XLA refuses products of so few numbers in bfloat16 (jaxlib 0.11.2)
        outlying = outlying.astype(F32)
    y = _coded_product(jnp.where(is_outlier[None], jnp.zeros_like(x), x), stack, layer, spec)
    return y + _product(outlying, weights, has_divided_columns=spec.has_divided_columns)


def _coded_product(x: jax.Array, stack: QTensor, layer: jax.Array, spec: MatmulSpec) -> Float[Array, "T *out"]:
    num_parts = 1 if stack.scheme.has_coded_inputs else NUM_PARTS.get(x.dtype, 2)
    multiply = partial(_product, has_divided_columns=spec.has_divided_columns)
    scales = lax.dynamic_index_in_dim(stack.scales, layer, keepdims=False)[None]
    if stack.scheme.has_coded_inputs or target_platform() in ("cpu", "gpu"):
        inputs, input_scales = code_tokens(x, num_parts, stack.scheme)
        sums = _of_layer(stack.codes, layer, multiply, inputs)
        return _joined(sums, num_parts) * (scales * lax.expand_dims(input_scales, range(1, scales.ndim)))
    return _of_layer(stack.codes, layer, multiply, x) * scales


def _joined(sums: Num[Array, "R *out"], num_parts: int) -> Float[Array, "T *out"]:
    parts = sums.astype(jnp.float32).reshape(num_parts, -1, *sums.shape[1:])
    y = parts[-1]
    for i in reversed(range(num_parts - 1)):
        y = parts[i] + y / FINER
    return y


def _of_layer(codes: Stacked, layer: jax.Array, multiply: partial[jax.Array], x: jax.Array) -> jax.Array:
    if isinstance(codes, tuple):
        return lax.switch(layer, [partial(_swapped, multiply, own) for own in codes], x)
    return multiply(x, lax.dynamic_index_in_dim(codes, layer, keepdims=False))


def _swapped(multiply: partial[jax.Array], codes: jax.Array, x: jax.Array) -> jax.Array:
    return multiply(x, codes)


def _product(x: jax.Array, codes: Num[Array, "*out I"], *, has_divided_columns: bool) -> jax.Array:
    """x · codesᵀ [T, *out]: of integers as int32, else as float32."""
    # One product for a gate and the other half, and one output axis, for the reasons given in `matmul/xla.py`.
    rows = codes if has_divided_columns else codes.reshape(-1, codes.shape[-1])
    multiply = cpu_product if target_platform() == "cpu" else contract
    y = multiply(x, rows.astype(x.dtype), jnp.dtype(jnp.int32 if x.dtype == jnp.int8 else jnp.float32))
    return y.reshape(len(x), *codes.shape[:-1])
