"""Device: the rules that select block sizes of the GPU kernel of `matmul`, and where "auto" uses it."""

from typing import Any

import jax.numpy as jnp

from pallas_kernels.dispatch import target_device_kind
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS, INPUTS, KernelSizes
from pallas_kernels.tuned_blocks import row_bucket, tuned

NUM_MULTIPROCESSORS = 132
"""Of an H100 and an H200 (SXM)."""
MIN_INPUTS = 512
"""Of a split, 64 KiB of 64 columns' weights: a shorter one ends when its ring has just been filled."""
MIN_DEPTH = 4


def block_sizes(
    num_rows: int, num_columns: int, num_inputs: int, types: tuple[Any, Any], spec: MatmulSpec
) -> BlockSizes:
    """Block sizes: measured on the target, else by rule. types: of the rows and of the weights.

    Raises:
      NotImplementedError: nothing was measured, the back end is not asked for by name, and weights are no FP8.
    """
    key = tuned_key(num_rows, num_columns, num_inputs, types, spec)
    measured = tuned("matmul", target_device_kind(), key)
    if measured is not None:
        return BlockSizes(**measured)
    # XLA copies FP8 codes of a layer before it multiplies them: a decode step would move 3.2 times their bytes.
    if spec.backend == "auto" and types[1] != jnp.float8_e4m3fn:
        raise NotImplementedError("no measurement says that it is faster than XLA's product")
    return by_rule(num_rows, num_columns, num_inputs, spec.num_parts, types[1])


def by_rule(
    num_rows: int, num_columns: int, num_inputs: int, num_parts: int, weight_dtype: Any = jnp.bfloat16
) -> BlockSizes:
    """Block sizes for what no device has measured.

    A thread block also reads the activations, from the L2 cache: those of 64 rows are as many bytes as the weights
    of 64 columns, those of 16 rows a quarter. Longer rows of a tile are read more efficiently, if enough tiles fit
    in shared memory. There are as many splits as give every multiprocessor a thread block.
    """
    is_wide = num_rows > 16 and num_parts == 1 and num_columns % (2 * COLUMNS) == 0
    columns = 2 * COLUMNS if is_wide else COLUMNS
    static = (num_parts, num_rows, num_columns, num_inputs, columns)
    has_depth = KernelSizes(*static, 2 * INPUTS, 1, jnp.bfloat16, weight_dtype, jnp.bfloat16).depth >= MIN_DEPTH
    inputs = 2 * INPUTS if has_depth and num_inputs % (2 * INPUTS) == 0 else INPUTS
    splits = 1
    while num_columns // columns * splits < NUM_MULTIPROCESSORS and num_inputs // (2 * splits) >= MIN_INPUTS:
        splits *= 2
    return BlockSizes(columns, inputs, splits)


def tuned_key(
    num_rows: int, num_columns: int, num_inputs: int, types: tuple[Any, Any], spec: MatmulSpec
) -> dict[str, int | str]:
    """One row is a product with a vector for XLA; 2 to 8 rows are as much work for the kernel as 8."""
    return {
        "num_rows": 1 if num_rows == 1 else max(8, row_bucket(num_rows)),
        "num_columns": num_columns,
        "num_inputs": num_inputs,
        "kind": "plain" if spec.activation is None else "gated",
        "dtype": str(jnp.dtype(types[0])),
        "weight_dtype": str(jnp.dtype(types[1])),
    }
