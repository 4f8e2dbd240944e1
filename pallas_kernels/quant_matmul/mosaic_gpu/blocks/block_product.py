"""Device: products with packed blocks on Hopper GPUs by one Pallas kernel.

    x, in chunks of 8 to 64 rows, permuted · packed bytes of a layer ──▶ kernel ──▶ y
                                                     with splits: └─ their sums ──▶ added in order ──▶ y

The product of the few rows of a decode step takes the time in which the packed bytes are read: from the stack, in
place. Of more rows each chunk of 64 decodes all weights again, while the tensor cores multiply: 64 columns of 256
inputs (Q4_0) take 362 cycles of instructions and 512 of products. XLA would write decoded weights to memory: for 128
rows and 4096 x 4096 weights it moves 10.6 times the packed bytes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import require_hopper
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.finish import finish_splits
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, MAX_ROWS
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import by_rule, check_served, num_chunks, step_inputs
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel import multiply_blocks
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.kernel_sizes import KernelSizes
from pallas_kernels.quant_matmul.on_each_device import on_each_device


def block_product(
    x: Float[Array, "T I"],
    stack: BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`. Weights are computed in the type of x, with scales and offsets that are rounded to it
    (`group_terms.py`): in bfloat16 a product has 1.3 times the error of dense weights, with offsets 1.7 times."""
    require_hopper()
    return on_each_device(_product, x, stack.of_arrays(), layer, spec, bias)


def _product(
    x: jax.Array, stack: BlockTensor, layer: jax.Array, spec: MatmulSpec, bias: jax.Array | None
) -> Float[Array, "T *out"]:
    first, num_rows = next(iter(stack.fields.values())), len(x)
    out = first.shape[1 if spec.activation is None else 2 : -1]
    fields = {
        name: field.reshape(len(field), spec.num_parts, -1, field.shape[-1]) for name, field in stack.fields.items()
    }
    sizes = _sizes(x, stack, fields[next(iter(fields))].shape[2], spec)
    rows = sizes.order.permuted(jnp.pad(x, ((0, sizes.num_chunks * sizes.num_rows - num_rows), (0, 0))))
    chunks = rows.reshape(sizes.num_chunks, sizes.num_rows, -1)
    bias = None if bias is None else bias.reshape(-1)
    y = multiply_blocks(chunks, fields, layer, bias, sizes=sizes, spec=spec)
    if sizes.splits > 1:
        by_split = jnp.moveaxis(y, 0, 2).reshape(sizes.splits, sizes.num_parts, len(rows), -1)
        y = finish_splits(by_split, [] if bias is None else [bias], spec).astype(sizes.out_dtype)
    return y.reshape(len(rows), -1)[:num_rows].reshape(num_rows, *out)


def _sizes(x: jax.Array, stack: BlockTensor, num_columns: int, spec: MatmulSpec) -> KernelSizes:
    """Raises NotImplementedError where the kernel does not serve these arguments."""
    num_rows, num_inputs = x.shape
    if x.dtype not in (jnp.bfloat16, jnp.float16):
        raise NotImplementedError(f"it multiplies bfloat16 or float16, not {x.dtype}")
    check_served(stack.form, num_columns, num_inputs)
    block = spec.block or by_rule(stack.form, num_rows, num_columns, num_inputs)
    if block.columns % COLUMNS or num_columns % block.columns or block.inputs != step_inputs(stack.form):
        raise NotImplementedError(
            f"blocks of {block.columns} columns do not divide {num_columns}, or are no multiple of {COLUMNS}; or steps "
            f"have {block.inputs} inputs, not {step_inputs(stack.form)}"
        )

    def with_chunks(count: int) -> KernelSizes:
        return KernelSizes(
            form=stack.form,
            num_parts=spec.num_parts,
            num_chunks=count,
            num_rows=-(-num_rows // (8 * count)) * 8,
            num_columns=num_columns,
            num_inputs=num_inputs,
            warpgroups=block.columns // COLUMNS,
            inputs=block.inputs,
            splits=block.splits,
            dtype=x.dtype,
            out_dtype=jnp.dtype(spec.out_dtype or x.dtype),
        )

    # A gate in 6 bits or more, of an odd number of tiles, leaves no room for two steps of 64 rows. One of MXFP4, or
    # with double quantization, leaves too few registers for their sums: up to 88 and 64 bytes a thread were spilled.
    sizes = with_chunks(num_chunks(num_rows))
    is_simple = not stack.form.values or (stack.form.group_len > 32 and not sizes.scale_values)
    has_registers = spec.num_parts == 1 or is_simple
    sizes = sizes if sizes.depth > 1 and has_registers else with_chunks(num_chunks(num_rows, MAX_ROWS // 2))
    if sizes.depth < 1:
        raise NotImplementedError(f"a step of {num_columns} x {num_inputs} in {stack.form.name} exceeds shared memory")
    return sizes
