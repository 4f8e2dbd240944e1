"""Device: `weight_copies`, the instructions of a compiled decode step that copy weights before they multiply.

Decoding takes as long as it takes to read all weights once; a copy reads them twice and writes them once.
"""

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxserve.core.hardware.mesh import local_shape
from jaxserve.runner.programs.hlo import Hlo, Instruction
from jaxserve.runner.programs.pool_aliasing import MOVE_NOTHING, hlo_type
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.cpu_products import cpu_rule
from pallas_kernels.quant_matmul.block_rows import tile_dtype

IN_FAST_MEMORY = re.compile(r"\{[^}]*S\(1\)[^}]*\}")  # a TPU's VMEM: what the next product is to read
WIDENED = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
MIN_ELEMENTS = 2**16  # of a matrix; smaller leaves may have the shape of anything
MAX_DECODED_BYTES = 2**20  # of a whole matrix on TPUs and GPUs, whose kernels decode in fast memory


def weight_copies(program: Hlo, params: Any, num_tokens: int, platform: str) -> list[str]:
    """Instructions that make an array of the shape of a matrix on a device, or of one layer's part of a stack.

    params: arrays or `jax.ShapeDtypeStruct`s. num_tokens: activations of as many rows are no weights. platform: of the
    device.
    """
    types = {name for leaf in jax.tree.leaves(params) for name in _types(leaf, num_tokens)}
    types.update(_decoded(params, num_tokens, platform))
    lines = (line for line in program.in_memory if line.opcode not in MOVE_NOTHING)
    return [line.description for line in lines if _makes(line, types)]


def _makes(line: Instruction, types: set[str]) -> bool:
    if line.opcode.endswith("-start"):  # whose result has its operands; that of the -done is the copy
        return False
    result = re.sub(r"\S+" + IN_FAST_MEMORY.pattern, "", line.result)
    return any(name in result for name in types)


def _decoded(params: Any, num_tokens: int, platform: str) -> Iterator[str]:
    """The types of what packed blocks of a layer stand for, or those at one place of the bytes; matrices that are no
    larger than a tile are decoded."""

    def is_packed(leaf: Any) -> bool:
        return isinstance(leaf, BlockTensor)

    for matrix in filter(is_packed, jax.tree.leaves(params, is_leaf=is_packed)):
        for values in jax.tree.leaves(matrix.fields[matrix.form.fields[0].name]):
            *rows, num_values = local_shape(values)
            shape = (math.prod(rows), matrix.form.num_inputs(num_values))
            dtype, most = jnp.dtype(matrix.dtype), MAX_DECODED_BYTES
            if platform == "cpu":
                dtype, most = tile_dtype(num_tokens, dtype), cpu_rule().tile_bytes
            if dtype.itemsize * math.prod(shape) > most:
                # Also as tiles lie, whose first axes are the gate and its other half, or 1, and the devices' shares.
                leads = (shape[0],), rows, (1, 1, shape[0]), (rows[0], 1, *rows[1:])
                for width, lead in product({shape[1], shape[1] // matrix.form.num_places}, leads):
                    yield from (hlo_type((*lead, width), widened) for widened in WIDENED)


def _types(leaf: Any, num_tokens: int) -> Iterator[str]:
    """How HLO writes the type of a leaf, of a layer's part of it, and of either as a table of rows; of codes also the
    types of what they stand for."""
    shape = local_shape(leaf)
    dtypes = [leaf.dtype, *(WIDENED if leaf.dtype.itemsize == 1 else ())]
    for part in (shape, (1, *shape[1:]), shape[1:]):
        for form in (part, (int(np.prod(part[:-1])), *part[-1:])):
            if np.prod(form) >= MIN_ELEMENTS and len(form) > 1 and form[0] != num_tokens:
                yield from (hlo_type(form, dtype) for dtype in dtypes)
