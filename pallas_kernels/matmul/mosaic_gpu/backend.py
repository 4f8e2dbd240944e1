"""Device: `matmul` and `quant_matmul` on Hopper GPUs by one Pallas kernel, for the few rows of a decode step.

    x, padded to a multiple of 8 rows · stack[layer]ᵀ ──▶ kernel ──▶ y
                                                             └─ with splits: their sums ──▶ added in order (XLA) ──▶ y

Such a product takes the time in which its weights are read. The kernel reads them from the stack in place.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import require_hopper, require_one_device
from pallas_kernels.matmul.matmul_spec import MatmulSpec, Stacked
from pallas_kernels.matmul.mosaic_gpu.block_rules import block_sizes
from pallas_kernels.matmul.mosaic_gpu.finish import finish_splits
from pallas_kernels.matmul.mosaic_gpu.kernel import multiply
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import CODES, COLUMNS, INPUTS, MAX_CODED_ROWS, MAX_ROWS, KernelSizes


def matmul(
    x: Float[Array, "T I"],
    stack: Stacked,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
    residual: Float[Array, "T *out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.matmul`."""
    return product(x, stack, None, None, layer, spec, bias, residual)


def product(
    x: jax.Array,
    stack: Stacked,
    scales: jax.Array | None,
    row_scales: jax.Array | None,
    layer: jax.Array,
    spec: MatmulSpec,
    bias: jax.Array | None,
    residual: jax.Array | None,
) -> jax.Array:
    """`matmul`; with scales [L, *out] the stack has codes, and the sums of each output are multiplied by its scale.

    row_scales: [T], float32, if x has codes, too, of the stack's type. Everything is computed in float32, of int8 sums
    as integers, and rounded once.
    """
    require_hopper()
    require_one_device()
    if isinstance(stack, tuple):
        raise NotImplementedError("it reads one array of all layers")
    num_rows, out_dtype = len(x), jnp.dtype(spec.out_dtype or x.dtype)
    out = stack.shape[1 if spec.activation is None else 2 : -1]
    parts = stack.reshape(len(stack), spec.num_parts, -1, stack.shape[-1])
    scales = None if scales is None else scales.reshape(parts.shape[:-1])
    sizes = _sizes(x, parts, spec, out_dtype)
    padding = ((0, sizes.num_rows - num_rows), (0, 0))
    x = jnp.pad(x, padding)
    row_scales = None if row_scales is None else jnp.pad(row_scales, padding[0])
    bias = None if bias is None else bias.reshape(-1)
    residual = None if residual is None else jnp.pad(residual.reshape(num_rows, -1), padding)
    y = multiply(x, parts, scales, row_scales, layer, bias, residual, sizes=sizes, spec=spec)
    if sizes.splits > 1:
        y = finish_splits(y, [b for b in (bias, residual) if b is not None], spec).astype(out_dtype)
    return y[:num_rows].reshape(num_rows, *out)


def _sizes(x: jax.Array, stack: jax.Array, spec: MatmulSpec, out_dtype: jnp.dtype) -> KernelSizes:
    """Raises NotImplementedError where the kernel does not serve these arguments."""
    num_rows, (num_columns, num_inputs) = len(x), stack.shape[-2:]
    are_codes = x.dtype in CODES and x.dtype == stack.dtype
    if not are_codes and (x.dtype not in (jnp.bfloat16, jnp.float16) or stack.dtype not in (x.dtype, jnp.int8)):
        raise NotImplementedError(f"it multiplies bfloat16 or float16, not {x.dtype} by {stack.dtype}")
    most = MAX_CODED_ROWS if are_codes else MAX_ROWS
    if num_rows > most:
        raise NotImplementedError(f"it is for at most {most} rows, not {num_rows}")
    whole = check_shape(num_columns, num_inputs)
    types = (x.dtype, stack.dtype)
    block = spec.block or block_sizes(num_rows, num_columns, num_inputs, types, spec)
    for name, (size, unit) in whole.items():
        of_block = getattr(block, name)
        if of_block % unit or size % of_block:
            raise NotImplementedError(f"blocks of {of_block} {name} do not divide {size}, or are no multiple of {unit}")
    padded = -(-num_rows // 8) * 8
    static = (block.columns, block.inputs, block.splits, *types, out_dtype)
    return KernelSizes(spec.num_parts, padded, num_columns, num_inputs, *static)


def check_shape(num_columns: int, num_inputs: int) -> dict[str, tuple[int, int]]:
    """Sizes by name, each with its unit. Raises NotImplementedError where the kernel does not serve them."""
    whole = {"columns": (num_columns, COLUMNS), "inputs": (num_inputs, INPUTS)}
    for name, (size, unit) in whole.items():
        if size % unit:
            raise NotImplementedError(f"{size} {name} are no multiple of {unit}")
    return whole
