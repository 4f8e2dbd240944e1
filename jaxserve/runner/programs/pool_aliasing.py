"""Device: `pool_copies`, the instructions of a compiled program that copy the KV pool."""

from typing import Any

import numpy as np

from jaxserve.core.hardware.mesh import device_bytes, local_shape
from jaxserve.runner.programs.hlo import FUSIONS, Hlo, Instruction

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
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}


def hlo_type(shape: tuple[int, ...], dtype: Any) -> str:
    """How HLO writes the type of an array, without its layout."""
    return f"{HLO_DTYPES[np.dtype(dtype).name]}[{','.join(map(str, shape))}]"


def local_type(leaf: Any) -> str:
    """The type of one device's part of an array, or of its `jax.ShapeDtypeStruct`."""
    return hlo_type(local_shape(leaf), leaf.dtype)


def pool_copies(program: Hlo, pool: Any, temporary_bytes: int) -> list[str]:
    """Instructions that allocate another array of the pool's shape, or of one layer's, on a device.

    pool: the array [Lg, P, K, page, W2], an extra array, or the ShapeDtypeStruct of one. temporary_bytes: of the
    program.
    """
    whole = local_shape(pool)
    shapes = [hlo_type(shape, pool.dtype) for shape in (whole, (1, *whole[1:]), whole[1:])]
    has_room = temporary_bytes >= device_bytes(pool)
    harmless = MOVE_NOTHING if has_room else MOVE_NOTHING | MAY_WRITE_INTO_OPERAND

    def makes_pool(line: Instruction) -> bool:
        if not any(shape in line.result for shape in shapes):
            return False
        if line.opcode in FUSIONS and SLICED_OPERANDS not in line.line:
            return any(makes_pool(inner) for name in line.called for inner in program.computations[name])
        return line.opcode not in harmless and SLICED_OPERANDS not in line.line

    return [line.description for line in program.in_memory if makes_pool(line)]
