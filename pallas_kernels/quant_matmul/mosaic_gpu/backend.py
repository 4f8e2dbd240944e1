"""Device: `quant_matmul` on Hopper GPUs: codes with a scale for each row by the kernel of `matmul`, which widens them
in registers, or multiplies them with codes of activations; blocks by a kernel of their own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.backend import product
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import MAX_CODED_ROWS
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.coded_tokens import code_tokens
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_product import block_product
from pallas_kernels.quant_matmul.on_each_device import on_each_device

MAX_CHUNKS = 2


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`."""
    if isinstance(stack, BlockTensor):
        return block_product(x, stack, layer, spec, bias)
    if stack.columns is not None:
        raise NotImplementedError("it multiplies codes alone; XLA adds the products of outliers")
    if not stack.scheme.has_coded_inputs:
        return product(x, stack.codes, stack.scales, None, layer, spec, bias, None)
    if spec.divided_axis == -1:
        return _of_divided_inputs(x, stack, layer, spec, bias)
    return on_each_device(_of_coded_rows, x, stack, layer, spec, bias)


def _of_coded_rows(
    x: jax.Array, stack: QTensor, layer: jax.Array, spec: MatmulSpec, bias: jax.Array | None
) -> jax.Array:
    codes, row_scales = code_tokens(x, 1, stack.scheme)
    spec = replace(spec, out_dtype=jnp.dtype(spec.out_dtype or x.dtype))
    return _of_chunks(codes, row_scales, stack, layer, spec, bias)


def _of_divided_inputs(
    x: jax.Array, stack: QTensor, layer: jax.Array, spec: MatmulSpec, bias: jax.Array | None
) -> jax.Array:
    """A token's scale is that of its inputs on all devices."""
    if spec.activation is not None:
        raise NotImplementedError("it applies a gate before devices' sums are added: divide the outputs")
    codes, row_scales = code_tokens(x, 1, stack.scheme)
    dtype = jnp.dtype(spec.out_dtype or x.dtype)

    def of_codes(
        codes: jax.Array, stack: QTensor, layer: jax.Array, spec: MatmulSpec, bias: jax.Array | None
    ) -> jax.Array:
        return _of_chunks(codes, jnp.ones(len(codes), jnp.float32), stack, layer, spec, bias)

    sums = on_each_device(of_codes, codes, stack, layer, replace(spec, out_dtype=jnp.dtype(jnp.float32)), None)
    y = sums * lax.expand_dims(row_scales, range(1, sums.ndim))
    return (y if bias is None else y + bias.astype(jnp.float32)[None]).astype(dtype)


def _of_chunks(
    codes: jax.Array,
    row_scales: jax.Array,
    stack: QTensor,
    layer: jax.Array,
    spec: MatmulSpec,
    bias: jax.Array | None,
) -> jax.Array:
    """Each chunk of rows reads the weights; two read as many bytes as one product in 16 bits."""
    num_rows = len(codes)
    if num_rows > MAX_CHUNKS * MAX_CODED_ROWS:
        raise NotImplementedError(f"it is for at most {MAX_CHUNKS * MAX_CODED_ROWS} rows of codes, not {num_rows}")
    size = -(-num_rows // -(-num_rows // MAX_CODED_ROWS))
    found = [
        product(
            codes[begin : begin + size],
            stack.codes,
            stack.scales,
            row_scales[begin : begin + size],
            layer,
            spec,
            bias,
            None,
        )
        for begin in range(0, num_rows, size)
    ]
    return found[0] if len(found) == 1 else jnp.concatenate(found)
