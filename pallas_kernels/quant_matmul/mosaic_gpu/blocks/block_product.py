"""Device: products with packed blocks on Hopper GPUs by one Pallas kernel, for the few rows of a decode step.

    x, padded to 8 rows, permuted · packed bytes of a layer ──▶ kernel ──▶ y
                                                                  └─ with splits: their sums ──▶ added in order ──▶ y

Such a product takes the time in which the packed bytes are read. The kernel reads them from the stack in place.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import require_hopper
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.backend import require_one_device
from pallas_kernels.matmul.mosaic_gpu.finish import finish_splits
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, MAX_ROWS
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import by_rule, check_served, step_inputs
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel import multiply_blocks
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel_sizes import KernelSizes


def block_product(
    x: Float[Array, "T I"],
    stack: BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`. Weights are rounded to the type of x, as dense ones are; all else is float32, rounded
    once."""
    require_hopper()
    require_one_device()
    stack = _as_arrays(stack)
    first, num_rows = next(iter(stack.fields.values())), len(x)
    out = first.shape[1 if spec.activation is None else 2 : -1]
    fields = {
        name: field.reshape(len(field), spec.num_parts, -1, field.shape[-1]) for name, field in stack.fields.items()
    }
    sizes = _sizes(x, stack, fields[next(iter(fields))].shape[2], spec)
    rows = sizes.order.permuted(jnp.pad(x, ((0, sizes.num_rows - num_rows), (0, 0))))
    bias = None if bias is None else bias.reshape(-1)
    y = multiply_blocks(rows, fields, layer, bias, sizes=sizes, spec=spec)
    if sizes.splits > 1:
        y = finish_splits(y, [] if bias is None else [bias], spec).astype(sizes.out_dtype)
    return y[:num_rows].reshape(num_rows, *out)


def _as_arrays(stack: BlockTensor) -> BlockTensor:
    """A matrix that is no layer's is a tuple of one array for each field."""
    fields = stack.fields
    if not any(isinstance(field, tuple) for field in fields.values()):
        return stack
    if any(len(field) > 1 for field in fields.values()):
        raise NotImplementedError("it reads one array of all layers")
    return replace(stack, fields={name: field[0][None] for name, field in fields.items()})


def _sizes(x: jax.Array, stack: BlockTensor, num_columns: int, spec: MatmulSpec) -> KernelSizes:
    """Raises NotImplementedError where the kernel does not serve these arguments."""
    num_rows, num_inputs = x.shape
    if x.dtype not in (jnp.bfloat16, jnp.float16):
        raise NotImplementedError(f"it multiplies bfloat16 or float16, not {x.dtype}")
    if num_rows > MAX_ROWS:
        raise NotImplementedError(f"it is for at most {MAX_ROWS} rows, not {num_rows}")
    check_served(stack.form, num_columns, num_inputs)
    block = spec.block or by_rule(stack.form, num_rows, num_columns, num_inputs)
    if block.columns % COLUMNS or num_columns % block.columns or block.inputs != step_inputs(stack.form):
        raise NotImplementedError(
            f"blocks of {block.columns} columns do not divide {num_columns}, or are no multiple of {COLUMNS}; or steps "
            f"have {block.inputs} inputs, not {step_inputs(stack.form)}"
        )
    return KernelSizes(
        form=stack.form,
        num_parts=spec.num_parts,
        num_rows=-(-num_rows // 8) * 8,
        num_columns=num_columns,
        num_inputs=num_inputs,
        warpgroups=block.columns // COLUMNS,
        inputs=block.inputs,
        splits=block.splits,
        dtype=x.dtype,
        out_dtype=jnp.dtype(spec.out_dtype or x.dtype),
    )
