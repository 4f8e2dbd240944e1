"""Device: `matmul` on Hopper GPUs by one Pallas kernel, for the few rows of a decode step.

    x, padded to a multiple of 8 rows · stack[layer]ᵀ ──▶ kernel ──▶ y
                                                             └─ with splits: their sums ──▶ added in order (XLA) ──▶ y

Such a product takes the time in which its weights are read. The kernel reads them from the stack in place.
"""

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.dispatch import require_hopper
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.block_rules import block_sizes
from pallas_kernels.matmul.mosaic_gpu.finish import finish
from pallas_kernels.matmul.mosaic_gpu.kernel import multiply
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, INPUTS, MAX_ROWS, KernelSizes


def matmul(
    x: Float[Array, "T I"],
    stack: Float[Array, "L *parts O I"],
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "O"] | None,
    residual: Float[Array, "T O"] | None,
) -> Float[Array, "T O"]:
    """See `api.matmul`."""
    require_hopper()
    num_rows, out_dtype = len(x), jnp.dtype(spec.out_dtype or x.dtype)
    sizes = _sizes(x, stack, spec, out_dtype)
    padding = ((0, sizes.num_rows - num_rows), (0, 0))
    x = jnp.pad(x, padding)
    residual = None if residual is None else jnp.pad(residual, padding)
    parts = stack.reshape(len(stack), sizes.num_parts, *stack.shape[-2:])
    y = multiply(x, parts, layer, bias, residual, sizes=sizes, spec=spec)
    if sizes.splits > 1:
        sums = list(reduce(add, y))  # the order is fixed, so results repeat
        added = [jnp.broadcast_to(b, sums[0].shape) for b in (bias, residual) if b is not None]
        y = finish(sums, added, spec).astype(out_dtype)
    return y[:num_rows]


def _sizes(x: jax.Array, stack: jax.Array, spec: MatmulSpec, out_dtype: jnp.dtype) -> KernelSizes:
    """Raises NotImplementedError where the kernel does not serve these arguments."""
    num_rows, (num_columns, num_inputs) = len(x), stack.shape[-2:]
    if x.dtype not in (jnp.bfloat16, jnp.float16) or stack.dtype != x.dtype:
        raise NotImplementedError(f"it multiplies bfloat16 or float16, not {x.dtype} by {stack.dtype}")
    if num_rows > MAX_ROWS:
        raise NotImplementedError(f"it is for at most {MAX_ROWS} rows, not {num_rows}")
    whole = {"columns": (num_columns, COLUMNS), "inputs": (num_inputs, INPUTS)}
    for name, (size, unit) in whole.items():
        if size % unit:
            raise NotImplementedError(f"{size} {name} are no multiple of {unit}")
    block = spec.block or block_sizes(num_rows, num_columns, num_inputs, x.dtype, spec)
    for name, (size, unit) in whole.items():
        of_block = getattr(block, name)
        if of_block % unit or size % of_block:
            raise NotImplementedError(f"blocks of {of_block} {name} do not divide {size}, or are no multiple of {unit}")
    padded = -(-num_rows // 8) * 8
    static = (block.columns, block.inputs, block.splits, x.dtype, out_dtype)
    return KernelSizes(spec.num_parts, padded, num_columns, num_inputs, *static)
