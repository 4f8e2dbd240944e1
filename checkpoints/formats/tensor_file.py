"""Host: `TensorFile`: the interface of tensor files of every format.

Shapes are row-major, weights `[out, in]`. A tensor is read as *rows*: all axes but the last are flattened, so `[E, F,
D]` has E·F rows of D values; a tensor with one axis or none is one row.
"""

import math
import mmap
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from checkpoints.errors import CheckpointError

INTEGER_DTYPES = frozenset({"BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"})


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as declared in the header.

    dtype: the format's own name (`"BF16"`, `"Q4_K"`). nbytes: size in the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    @property
    def row_len(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])


class TensorFile(Protocol):
    """An open checkpoint file with a checked header; tensor values stay on disk until rows are read."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, Any]

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows `[start, stop)` as a new array `[stop - start, row_len]`: block types in float32, others as stored."""
        ...

    def close(self) -> None: ...


class ColumnFile(TensorFile, Protocol):
    """A `TensorFile` of which columns can be read."""

    def read_columns(self, name: str, start: int, stop: int) -> np.ndarray:
        """Columns `[start, stop)` of all rows, as stored, as a new array `[num_rows, stop - start]`."""
        ...


class MappedFile:
    """A file opened read-only. data: mapped, for headers.

    Tensors are copied by system calls, because a file that is truncated while mapped memory is read ends the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY)
            self._close = weakref.finalize(self, os.close, self._fd)
            self.data = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be opened ({error.strerror})") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: is empty") from error
        self.num_bytes = len(self.data)

    def fail(self, fault: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {fault}")

    def copy_bytes(self, start: int, stop: int) -> np.ndarray:
        """Bytes `[start, stop)` as a new uint8 array."""
        copied = np.empty(stop - start, np.uint8)
        self._copy_into(copied, start)
        return copied

    def copy_columns(self, first: int, num_rows: int, row_bytes: int, start: int, stop: int) -> np.ndarray:
        """Bytes `[start, stop)` of each of the rows that begin at byte `first`, as a new uint8 array."""
        copied = np.empty((num_rows, stop - start), np.uint8)
        for i, row in enumerate(copied):
            self._copy_into(row, first + i * row_bytes + start)
        return copied

    def close(self) -> None:
        self.data.close()
        self._close()

    def _copy_into(self, target: np.ndarray, start: int) -> None:
        rest = memoryview(target)
        while rest:
            try:
                count = os.preadv(self._fd, [rest], start)
            except OSError as error:
                raise self.fail(f"cannot be read at byte {start} ({error.strerror})") from error
            if not count:
                raise self.fail(f"ends at byte {start} of {self.num_bytes}: it became shorter while it was read")
            rest, start = rest[count:], start + count


def check_extents(file: MappedFile, extents: Iterable[tuple[int, int, str]]) -> None:
    """Raises `CheckpointError` where byte ranges `(start, stop, name)` exceed the file or overlap."""
    last_stop, last_name = 0, ""
    for start, stop, name in sorted(extents):
        if stop > file.num_bytes:
            raise file.fail(f"tensor {name!r} ends at byte {stop} of {file.num_bytes}: incomplete download?")
        if start < last_stop and start < stop:
            raise file.fail(f"tensors {last_name!r} and {name!r} overlap at byte {start}")
        if stop > last_stop:
            last_stop, last_name = stop, name


def check_rows(info: TensorInfo, start: int, stop: int) -> None:
    """Raises `IndexError` for a row range outside the tensor."""
    if not 0 <= start <= stop <= info.num_rows:
        raise IndexError(f"rows [{start}, {stop}) of tensor {info.name!r}, which has {info.num_rows}")
