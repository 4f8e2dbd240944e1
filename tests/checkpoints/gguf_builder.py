"""Writes GGUF files, well-formed by default, independently of the reader."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType

ALIGNMENT = 32
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Typed:
    """A metadata value with its type id; `item_id`: the type id of an array's items."""

    type_id: int
    value: Any
    item_id: int = 0


@dataclass(frozen=True)
class Tensor:
    """One tensor declaration; `offset` None places the tensor after the previous one."""

    name: str
    shape: Sequence[int]
    type_id: int
    data: bytes
    offset: int | None = None


SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(typed: Typed) -> bytes:
    if typed.type_id == STRING:
        return string(typed.value)
    if typed.type_id == ARRAY:
        items = b"".join(value(item if isinstance(item, Typed) else Typed(typed.item_id, item)) for item in typed.value)
        return struct.pack("<IQ", typed.item_id, len(typed.value)) + items
    return struct.pack("<" + SCALAR_CODES[typed.type_id], typed.value)


def infer(plain: Any) -> Typed:
    if isinstance(plain, Typed):
        return plain
    if isinstance(plain, str):
        return Typed(STRING, plain)
    if isinstance(plain, bool):
        return Typed(7, plain)
    return Typed(4, plain) if isinstance(plain, int) else Typed(6, plain)


def pack(tensor: str, array: np.ndarray, kind: str = "F32") -> Tensor:
    """A float array encoded as a tensor of the named type."""
    type_id = GGMLQuantizationType[kind]
    return Tensor(tensor, array.shape, int(type_id), quants.quantize(array.astype(np.float32), type_id).tobytes())


def declaration(tensor: Tensor, offset: int) -> bytes:
    dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
    return string(tensor.name) + dims + struct.pack("<IQ", tensor.type_id, offset)


def build(
    tensors: Sequence[Tensor] = (),
    metadata: Mapping[str, Any] | None = None,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_pairs: int | None = None,
    extra_pairs: bytes = b"",
) -> bytes:
    """The bytes of a file; the keyword arguments make its header false."""
    pairs = b"".join(
        string(key) + struct.pack("<I", infer(plain).type_id) + value(infer(plain))
        for key, plain in (metadata or {}).items()
    )
    declarations, data = b"", b""
    for tensor in tensors:
        offset = len(data) if tensor.offset is None else tensor.offset
        declarations += declaration(tensor, offset)
        data += tensor.data + bytes(-len(tensor.data) % ALIGNMENT)
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(metadata or {}) if num_pairs is None else num_pairs,
    )
    header = magic + struct.pack("<IQQ", version, *counts) + pairs + extra_pairs + declarations
    return header + bytes(-len(header) % ALIGNMENT) + data


def write(path: Path, *args: Any, **kwargs: Any) -> Path:
    path.write_bytes(build(*args, **kwargs))
    return path
