"""Device: `matmul`, the product of a step's rows with the weights of one layer in a stack of layers."""

from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.matmul import reference, xla
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked

GPU = "pallas_kernels.matmul.mosaic_gpu.backend"
IMPLEMENTATIONS = (
    Implementation("mosaic_gpu", imported_on_demand(GPU, "matmul"), platforms=("gpu",)),
    Implementation("xla", xla.matmul),
    Implementation("reference", reference.matmul, is_automatic=False),
)


def matmul(
    x: Float[Array, "T I"],
    stack: Stacked,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None = None,
    residual: Float[Array, "T *out"] | None = None,
) -> Float[Array, "T *out"]:
    """x · stack[layer]ᵀ (+ bias) (+ residual), or activation(x · stack[layer, 0]ᵀ) · (x · stack[layer, 1]ᵀ).

    Sums are accumulated in float32. Of the stack, only the layer's part reaches the result. Arrays may be divided over
    the devices of a mesh as XLA divides them; kernels serve one device.

    Args:
      stack: [L, *out, I], or L arrays [*out, I]; with `spec.activation` `out` begins with 2, the gate first, and the
        result lacks this axis.
      layer: index in the stack's first axis.
      spec: the arguments that are fixed when the call is compiled.
      bias, residual: added to a product without a gate.

    Returns:
      y in `spec.out_dtype`, or in the type of x.

    Raises:
      ValueError: arguments contradict each other.
      NotImplementedError: no back end serves them; the message lists each one's reason.
    """
    out = (stack[0].shape if isinstance(stack, tuple) else stack.shape[1:])[:-1]
    if spec.activation is not None:
        if len(out) < 2 or out[0] != 2:
            raise ValueError(f"a layer has outputs {out}; activation={spec.activation!r} needs (2, columns)")
        if bias is not None or residual is not None:
            raise ValueError("a product with a gate adds neither a bias nor a residual")
    return dispatch("matmul", IMPLEMENTATIONS, spec.backend, x, stack, layer, spec, bias=bias, residual=residual)
