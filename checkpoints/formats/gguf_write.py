"""Host: writes a GGUF file (version 3) tensor by tensor; it appears when it is complete.

The layout is that of the format's specification (ggml, docs/gguf.md): a header of key-values, tensor declarations with
dimensions fastest first, and the bytes of the tensors, each at a multiple of the alignment.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from checkpoints.formats.gguf_header import ARRAY, SCALARS, STRING
from checkpoints.formats.resumable_file import resumable_file
from checkpoints.formats.tensor_file import TensorInfo

VERSION, ALIGNMENT = 3, 32
_IDS = {dtype: type_id for type_id, dtype in SCALARS.items()}
_PLAIN: tuple[tuple[type, np.dtype[Any]], ...] = (
    (bool, np.dtype(bool)),
    (int, np.dtype("<u4")),
    (float, np.dtype("<f4")),
)
_SIGNED = np.dtype("<i4")  # of lists of integers, as others write them


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Sequence[TensorInfo],
    make: Callable[[TensorInfo], Iterable[np.ndarray]],
    job: dict[str, Any],
    *,
    is_renewed: bool = False,
) -> None:
    """Writes one file. metadata: texts, flags, integers, numbers, lists or arrays of one of these. make: called with
    each tensor in order, gives its bytes in pieces; not with those that an interrupted call of the same job, header
    included, has completed. job, is_renewed: as of `resumable_file`.

    Raises ValueError for a value of another kind, and for a tensor of another size than its declaration says.
    """
    header = _header(metadata, tensors)
    header += bytes(-len(header) % ALIGNMENT)
    job = job | {"header": sha256(header).hexdigest()}
    with resumable_file(path, job, is_renewed=is_renewed) as parts:
        if parts.num_parts == 0:
            parts.file.write(header)
        for tensor in tensors[parts.num_parts :]:
            num_bytes = 0
            for piece in make(tensor):
                num_bytes += parts.file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            if num_bytes != tensor.nbytes:
                raise ValueError(f"{tensor.name} has {num_bytes} bytes, not {tensor.nbytes}")
            parts.file.write(bytes(-num_bytes % ALIGNMENT))
            parts.end_part()


def _header(metadata: Mapping[str, Any], tensors: Sequence[TensorInfo]) -> bytes:
    from gguf.constants import GGMLQuantizationType

    pairs = b"".join(_string(key) + _typed(key, value) for key, value in metadata.items())
    declarations, offset = list[bytes](), 0
    for tensor in tensors:
        sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        place = struct.pack("<IQ", GGMLQuantizationType[tensor.dtype], offset)
        declarations.append(_string(tensor.name) + sizes + place)
        offset += tensor.nbytes + -tensor.nbytes % ALIGNMENT
    counts = struct.pack("<IQQ", VERSION, len(tensors), len(metadata))
    return b"GGUF" + counts + pairs + b"".join(declarations)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _typed(key: str, value: Any) -> bytes:
    """A value after the id of its type."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, list | tuple):
        return struct.pack("<I", ARRAY) + _array(key, cast("Sequence[Any]", value))
    if isinstance(value, np.ndarray):
        return struct.pack("<I", ARRAY) + _numbers(key, cast("np.ndarray", value))
    number = np.asarray(value, _dtype_of(key, value))
    return struct.pack("<I", _IDS[number.dtype]) + number.tobytes()


def _array(key: str, items: Sequence[Any]) -> bytes:
    if not items or isinstance(items[0], str):
        return struct.pack("<IQ", STRING, len(items)) + b"".join(map(_string, items))
    dtype = _dtype_of(key, items[0])
    return _numbers(key, np.array(items, _SIGNED if dtype.kind == "u" else dtype))


def _numbers(key: str, array: np.ndarray) -> bytes:
    if array.ndim != 1 or array.dtype not in _IDS:
        raise ValueError(f"{key!r} is an array {array.dtype}{list(array.shape)}, which GGUF has no type for")
    return struct.pack("<IQ", _IDS[array.dtype], len(array)) + array.tobytes()


def _dtype_of(key: str, value: Any) -> np.dtype[Any]:
    for kind, dtype in _PLAIN:
        if isinstance(value, kind):
            return dtype
    raise ValueError(f"{key!r} is {value!r}, which GGUF has no type for")
