"""Device: `pool_copies`, the instructions of a compiled program that copy the KV pool."""

import math
from typing import Any

import numpy as np

from jaxserve.core.hardware.mesh import device_bytes, local_shape
from jaxserve.runner.programs.hlo import FUSIONS, Hlo, Instruction, array_types

# Instructions whose result may be a whole pool because they move no data: kernels alias their operand.
MOVE_NOTHING = {"parameter", "get-tuple-element", "tuple", "bitcast", "custom-call", "while", "conditional", "call"}
# These write into their operand if the compiler aliases it; otherwise they need memory for a copy.
MAY_WRITE_INTO_OPERAND = {"scatter", "dynamic-update-slice"}
SLICED_OPERANDS = '"custom_fusion_config":{"name":"dynamic_slice_fusion"'  # a custom call on a GPU, in place too
HLO_DTYPES = {
    "bfloat16": "bf16",
    "uint8": "u8",
    "float16": "f16",
    "uint16": "u16",
    "float32": "f32",
    "int8": "s8",
    "int32": "s32",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}


def hlo_dtype(dtype: Any) -> str:
    """How HLO writes the type of numbers."""
    return HLO_DTYPES[np.dtype(dtype).name]


def hlo_type(shape: tuple[int, ...], dtype: Any) -> str:
    """How HLO writes the type of an array, without its layout."""
    return f"{hlo_dtype(dtype)}[{','.join(map(str, shape))}]"


def shape_of(array: str) -> list[int]:
    """Of the type of an array in HLO."""
    return [int(size) for size in array.partition("[")[2].partition("]")[0].split(",") if size]


def local_type(leaf: Any) -> str:
    """The type of one device's part of an array, or of its `jax.ShapeDtypeStruct`."""
    return hlo_type(local_shape(leaf), leaf.dtype)


def pool_copies(program: Hlo, pool: Any, temporary_bytes: int) -> list[str]:
    """Instructions that allocate another array as large as the pool, or as one layer of it, on a device: kernels read
    it in other shapes.

    pool: the array [Lg, P, K, page, W2], an extra array, or the ShapeDtypeStruct of one. temporary_bytes: of the
    program.
    """
    kind, num_layers, *rest = hlo_dtype(pool.dtype), *local_shape(pool)
    counts = {num_layers * math.prod(rest), math.prod(rest)}
    has_room = temporary_bytes >= device_bytes(pool)
    harmless = MOVE_NOTHING if has_room else MOVE_NOTHING | MAY_WRITE_INTO_OPERAND

    def is_pool(array: str) -> bool:
        return array.startswith(f"{kind}[") and math.prod(shape_of(array)) in counts

    def makes_pool(line: Instruction) -> bool:
        if not any(map(is_pool, array_types(line.result))):
            return False
        if line.opcode in FUSIONS and SLICED_OPERANDS not in line.line:
            return any(makes_pool(inner) for name in line.called for inner in program.computations[name])
        return line.opcode not in harmless and SLICED_OPERANDS not in line.line

    return [line.description for line in program.in_memory if makes_pool(line)]
