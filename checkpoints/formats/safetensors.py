"""Host: reads safetensors files, single or sharded by `model.safetensors.index.json`.

A file is an 8-byte little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}` with offsets
relative to its end, then the tensors. The whole header is checked against the file before any tensor is read.
"""

import math
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.bounded_json import parse_object, read_object
from checkpoints.formats.tensor_file import MappedFile, TensorInfo, check_extents, check_rows

# Enough for hundreds of thousands of tensors; the largest published shards need 1 MB.
_MAX_HEADER_BYTES = 25_000_000
_MAX_AXES = 8

DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "BOOL": np.dtype(np.bool_),
    **{
        f"{sign}{bits}": np.dtype(f"{kind}{bits}")
        for sign, kind in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
}


class SafetensorsFile:
    """One `.safetensors` file (a `ColumnFile`)."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = MappedFile(path)
        try:
            header, data_start = self._read_header()
            self.metadata = self._check_metadata(header.pop("__metadata__", {}))
            self._starts: dict[str, int] = {}
            self.tensors: dict[str, TensorInfo] = {}
            for name, entry in header.items():
                info, start = self._check_entry(name, entry)
                self.tensors[name], self._starts[name] = info, data_start + start
            check_extents(self._file, ((s, s + self.tensors[name].nbytes, name) for name, s in self._starts.items()))
        except CheckpointError:
            self.close()
            raise

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        check_rows(info, start, stop)
        dtype = DTYPES[info.dtype]
        row_bytes = info.row_len * dtype.itemsize
        first = self._starts[name]
        raw = self._file.copy_bytes(first + start * row_bytes, first + stop * row_bytes)
        return raw.view(dtype).reshape(stop - start, info.row_len)

    def read_columns(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        if not 0 <= start <= stop <= info.row_len:
            raise IndexError(f"columns [{start}, {stop}) of tensor {name!r}, which has {info.row_len}")
        dtype, size = DTYPES[info.dtype], DTYPES[info.dtype].itemsize
        raw = self._file.copy_columns(self._starts[name], info.num_rows, info.row_len * size, start * size, stop * size)
        return raw.view(dtype).reshape(info.num_rows, stop - start)

    def close(self) -> None:
        self._file.close()

    def _read_header(self) -> tuple[dict[str, Any], int]:
        file = self._file
        if file.num_bytes < 8:
            raise file.fail("is too short for a safetensors file")
        header_bytes = int.from_bytes(file.copy_bytes(0, 8).tobytes(), "little")
        if header_bytes > min(file.num_bytes - 8, _MAX_HEADER_BYTES):
            raise file.fail(
                f"claims a header of {header_bytes} bytes, of {file.num_bytes} in all; the limit is {_MAX_HEADER_BYTES}"
            )
        raw = file.copy_bytes(8, 8 + header_bytes).tobytes()
        return parse_object(raw, f"{file.path}: the header"), 8 + header_bytes

    def _check_metadata(self, metadata: Any) -> dict[str, Any]:
        if not (found := _string_map(metadata)) and metadata != {}:
            raise self._file.fail("__metadata__ must map strings to strings")
        return dict(found)

    def _check_entry(self, name: str, entry: Any) -> tuple[TensorInfo, int]:
        shape: list[Any]
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]}:
                pass
            case _:
                raise self._file.fail(f"tensor {name!r} must have dtype, shape and two data_offsets")
        if dtype not in DTYPES:
            raise self._file.fail(f"tensor {name!r} has the unknown dtype {dtype!r}; known are {', '.join(DTYPES)}")
        if len(shape) > _MAX_AXES or not all(type(size) is int and 0 <= size < 2**48 for size in shape):
            raise self._file.fail(f"tensor {name!r} must have at most {_MAX_AXES} axes, each a size from 0 to 2**48")
        nbytes = math.prod(shape) * DTYPES[dtype].itemsize
        if start < 0 or stop - start != nbytes:
            raise self._file.fail(
                f"tensor {name!r} of dtype {dtype} and shape {shape} needs {nbytes} bytes, not [{start}, {stop})"
            )
        return TensorInfo(name, tuple(shape), dtype, nbytes), start


def _string_map(value: Any) -> dict[str, str]:
    """A JSON object of strings; empty where `value` is anything else."""
    table = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    return table if all(isinstance(item, str) for item in table.values()) else {}


class ShardedSafetensors:
    """The files of an index, as one `ColumnFile`."""

    def __init__(self, index: Path) -> None:
        weight_map = _string_map(read_object(index, _MAX_HEADER_BYTES).get("weight_map"))
        if not weight_map:
            raise CheckpointError(f"{index}: weight_map must map tensor names to file names")
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._shard_of: dict[str, SafetensorsFile] = {}
        self._shards: list[SafetensorsFile] = []
        try:
            for shard_name in sorted(set(weight_map.values())):
                self._add_shard(index, shard_name)
            for name, shard_name in weight_map.items():
                if name not in self.tensors or self._shard_of[name].name != shard_name:
                    raise CheckpointError(f"{index}: lists tensor {name!r} in {shard_name}, which does not hold it")
        except CheckpointError:
            self.close()
            raise

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._shard_of[name].read_rows(name, start, stop)

    def read_columns(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._shard_of[name].read_columns(name, start, stop)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def _add_shard(self, index: Path, shard_name: str) -> None:
        # Only the name is checked: in the hub's cache each file is a link to another folder, so links are followed.
        if (
            not shard_name.endswith(".safetensors")
            or any(c in shard_name for c in "/\\:")
            or shard_name.startswith(".")
            or not shard_name.isprintable()
        ):
            raise CheckpointError(
                f"{index}: names the file {shard_name!r}; only .safetensors files in its folder are read"
            )
        shard = SafetensorsFile(index.parent / shard_name)
        self._shards.append(shard)
        for name, info in shard.tensors.items():
            if name in self.tensors:
                raise CheckpointError(f"{index}: tensor {name!r} is in {shard_name} and in another file as well")
            self.tensors[name], self._shard_of[name] = info, shard
        self.metadata |= shard.metadata
