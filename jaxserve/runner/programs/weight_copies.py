"""Device: `weight_copies`, the instructions of a compiled decode step that copy weights before they multiply.

Decoding takes as long as it takes to read all weights once; a copy reads them twice and writes them once. A copy is an
array of as many numbers as a matrix on a device, one layer of a stack, or one part of a layer (a KV head's, or the
gate), of which one axis is as long as the matrix's inputs: compilers merge and exchange the others.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxserve.core.hardware.mesh import local_shape
from jaxserve.runner.programs.hlo import Hlo, Instruction, array_types
from jaxserve.runner.programs.pool_aliasing import MOVE_NOTHING, hlo_dtype, shape_of
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.cpu_products import cpu_rule
from pallas_kernels.quant_matmul.block_rows import tile_dtype

IN_FAST_MEMORY = re.compile(r"\{[^}]*S\(1\)[^}]*\}")  # a TPU's VMEM: what the next product is to read
WIDENED = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
MIN_ELEMENTS = 2**16  # of a matrix; smaller leaves may have the shape of anything
MAX_DECODED_BYTES = 2**20  # of a whole matrix on TPUs and GPUs, whose kernels decode in fast memory


@dataclass(frozen=True)
class _Matrices:
    """stored, decoded: the type of numbers, how many, and the length of an axis, of what is decoded the last one.
    widths: numbers of an activation."""

    num_tokens: int
    stored: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])
    decoded: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])
    widths: set[int] = field(default_factory=set[int])

    def has(self, array: str) -> bool:
        """Whether an array is as large as one of them. Activations may be: of each token as many numbers as a matrix
        has inputs or outputs, in one axis or, such as the hidden states of three layers, in two."""
        kind, shape = array.partition("[")[0], shape_of(array)
        count, sizes = math.prod(shape), [size for size in shape if size > 1]
        is_activation = self.num_tokens in sizes[:2] and count // self.num_tokens in self.widths
        if is_activation or not sizes:
            return False
        is_stored = any((kind, count, width) in self.stored for width in sizes)
        return is_stored or (kind, count, sizes[-1]) in self.decoded


def weight_copies(program: Hlo, params: Any, num_tokens: int, platform: str) -> list[str]:
    """Instructions that make an array as large as a matrix on a device, or as a part of it.

    params: arrays or `jax.ShapeDtypeStruct`s. num_tokens: of which there are activations. platform: of the device.
    """
    matrices = _Matrices(num_tokens)
    for matrix in jax.tree.leaves(params, is_leaf=_is_packed):
        for leaf in jax.tree.leaves(matrix):
            _add_stored(matrices, leaf, may_be_codes=not _is_packed(matrix))
        if isinstance(matrix, BlockTensor):
            _add_decoded(matrices, matrix, platform)
    lines = (line for line in program.in_memory if line.opcode not in MOVE_NOTHING)
    return [line.description for line in lines if _makes(line, matrices)]


def _makes(line: Instruction, matrices: _Matrices) -> bool:
    if line.opcode.endswith("-start"):  # whose result has its operands; that of the -done is the copy
        return False
    return any(matrices.has(array) for array in array_types(line.result) if not IN_FAST_MEMORY.search(array))


def _is_packed(leaf: Any) -> bool:
    return isinstance(leaf, BlockTensor)


def _add_stored(matrices: _Matrices, leaf: Any, *, may_be_codes: bool) -> None:
    """A leaf, [outputs, inputs], or with axes for layers and parts before these; of codes also what they stand for."""
    shape = local_shape(leaf)
    if len(shape) < 2:
        return
    for part in _parts(shape):
        matrices.widths.update((math.prod(part[:-1]), part[-1]))
        for dtype in (leaf.dtype, *(WIDENED if may_be_codes and leaf.dtype.itemsize == 1 else ())):
            if MIN_ELEMENTS <= math.prod(part) > part[-1]:
                matrices.stored.add((hlo_dtype(dtype), math.prod(part), part[-1]))


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The whole, and what is left of it without one or two of the first axes."""
    for num_axes in range(min(2, len(shape) - 2) + 1):
        yield shape[num_axes:]


def _add_decoded(matrices: _Matrices, matrix: BlockTensor, platform: str) -> None:
    """What packed blocks stand for, or those at one place of the bytes; matrices that are no larger than a tile are
    decoded."""
    for values in jax.tree.leaves(matrix.fields[matrix.form.fields[0].name]):
        *rows, num_values = local_shape(values)
        num_inputs, dtype, most = matrix.form.num_inputs(num_values), jnp.dtype(matrix.dtype), MAX_DECODED_BYTES
        shape = *rows, num_inputs
        parts = _parts(shape)
        if platform == "cpu":  # where a leaf is one layer, and tiles of the head are as large as a part of one
            dtype, most, parts = tile_dtype(matrices.num_tokens, dtype), cpu_rule().tile_bytes, [shape]
        for part in parts:
            if dtype.itemsize * math.prod(part) > most:
                for width in num_inputs, num_inputs // matrix.form.num_places:
                    count = math.prod(part[:-1]) * width
                    matrices.decoded.update((hlo_dtype(widened), count, width) for widened in WIDENED)
