"""Device: `quant_matmul` on Hopper GPUs: codes with a scale for each row by the kernel of `matmul`, which widens them
in registers, or multiplies them with codes of activations; blocks by a kernel of their own."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.backend import product
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.coded_tokens import code_tokens
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_product import block_product


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
    if not stack.scheme.has_coded_inputs:
        return product(x, stack.codes, stack.scales, None, layer, spec, bias, None)
    codes, row_scales = code_tokens(x, 1, stack.scheme)
    spec = replace(spec, out_dtype=jnp.dtype(spec.out_dtype or x.dtype))
    return product(codes, stack.codes, stack.scales, row_scales, layer, spec, bias, None)
