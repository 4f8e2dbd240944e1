"""Device: `quant_matmul`, the product of a step's rows with the packed weights of one layer in a stack of layers."""

from dataclasses import replace

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul import reference, xla

GPU = "pallas_kernels.quant_matmul.mosaic_gpu.backend"
TPU = "pallas_kernels.quant_matmul.mosaic_tpu.backend"
IMPLEMENTATIONS = (
    Implementation("mosaic_gpu", imported_on_demand(GPU, "quant_matmul"), platforms=("gpu",)),
    Implementation("mosaic_tpu", imported_on_demand(TPU, "quant_matmul"), platforms=("tpu",)),
    Implementation("xla", xla.quant_matmul),
    Implementation("reference", reference.quant_matmul, is_automatic=False),
)


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None = None,
) -> Float[Array, "T *out"]:
    """x · wᵀ (+ bias), or activation(x · w[0]ᵀ) · (x · w[1]ᵀ), of the decoded weights w of a layer.

    No array of decoded weights is made; of blocks some rows are decoded at a time. With a scheme of coded inputs each
    token is coded with the scale max |x| / the largest code, over all inputs but outliers, whose products in the type
    of x are added in float32; sums of integers are exact.

    Args:
      stack: of layers.
      layer: index in the stack's first axis.
      spec: as for `matmul`.
      bias: added to a product without a gate.

    Returns:
      y in `spec.out_dtype`, or in the type of x.

    Raises:
      NotImplementedError: no back end serves these arguments; the message lists each one's reason.
    """
    if isinstance(stack, BlockTensor) and stack.order is not None:
        order = lax.dynamic_index_in_dim(jnp.asarray(stack.order), layer, keepdims=False)
        x, stack = x.at[:, order].get(mode="clip"), replace(stack, order=None)
    return dispatch("quant_matmul", IMPLEMENTATIONS, spec.backend, x, stack, layer, spec, bias=bias)
