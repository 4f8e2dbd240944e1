"""Device: `quant_matmul` on Hopper GPUs: the kernel of `matmul`, which widens codes in registers."""

from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.backend import product
from pallas_kernels.qtensor import QTensor


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`."""
    if isinstance(stack, BlockTensor) or stack.scheme.has_coded_inputs:
        raise NotImplementedError("it widens codes of 8 bits with a scale for each row, and codes no activations")
    return product(x, stack.codes, stack.scales, layer, spec, bias, None)
