"""Device: `matmul`, the product of a step's rows with the weights of one layer in a stack of layers."""

from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.matmul import reference, xla
from pallas_kernels.matmul.matmul_spec import MatmulSpec

GPU = "pallas_kernels.matmul.mosaic_gpu.backend"
IMPLEMENTATIONS = (
    Implementation("mosaic_gpu", imported_on_demand(GPU, "matmul"), platforms=("gpu",)),
    Implementation("xla", xla.matmul),
    Implementation("reference", reference.matmul, is_automatic=False),
)


def matmul(
    x: Float[Array, "T I"],
    stack: Float[Array, "L *parts O I"],
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "O"] | None = None,
    residual: Float[Array, "T O"] | None = None,
) -> Float[Array, "T O"]:
    """x · stack[layer]ᵀ (+ bias) (+ residual), or activation(x · stack[layer, 0]ᵀ) · (x · stack[layer, 1]ᵀ).

    One device's arrays: the caller divides them. Sums are accumulated in float32. Of the stack, only the layer's part
    reaches the result.

    Args:
      stack: [L, O, I]; with `spec.activation` [L, 2, O, I], the gate first.
      layer: index in the stack's first axis.
      spec: the arguments that are fixed when the call is compiled.
      bias, residual: added to a product without a gate.

    Returns:
      y in `spec.out_dtype`, or in the type of x.

    Raises:
      ValueError: arguments contradict each other.
      NotImplementedError: no back end serves them; the message lists each one's reason.
    """
    parts = () if spec.activation is None else (2,)
    if stack.shape[1:-2] != parts:
        needed = ("L", *parts, "O", "I")
        raise ValueError(
            f"stack has shape {stack.shape}; activation={spec.activation!r} needs [{', '.join(map(str, needed))}]"
        )
    if parts and (bias is not None or residual is not None):
        raise ValueError("a product with a gate adds neither a bias nor a residual")
    return dispatch("matmul", IMPLEMENTATIONS, spec.backend, x, stack, layer, spec, bias=bias, residual=residual)
