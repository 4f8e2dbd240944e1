"""Host: reads tensors in pieces of a bounded number of rows, each decoded, transformed and cast."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from checkpoints.formats.tensor_file import TensorFile
from checkpoints.mapping.load_plan import Assignment
from checkpoints.quantized.packed_file import PackedFile
from checkpoints.quantized.quantized_file import QuantizedFile

# Size of the decoded float32 rows. A reader holds about three times as much while it decodes and casts.
PIECE_BYTES = 16 * 2**20

Fields = Mapping[str, np.ndarray]
"""Of packed rows, by name."""
Progress = Callable[[int, int], None]
"""Called with the bytes that are done and the total."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `[start, stop)` of one tensor."""

    assignment: Assignment
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Size in the file."""
        info = self.assignment.info
        return info.nbytes * (self.stop - self.start) // info.shape[0]


def cut(assignment: Assignment, start: int = 0, stop: int | None = None) -> Iterator[Piece]:
    """Rows `[start, stop)` in equal pieces of at most `PIECE_BYTES` decoded bytes, cut where the transform allows.

    Equal pieces have few shapes, so few programs are compiled. Raises `ValueError` where the range itself is not a
    multiple of the transform's `align_rows`.
    """
    shape, align = assignment.info.shape, assignment.transform.align_rows
    stop = shape[0] if stop is None else stop
    if start % align or stop % align:
        raise ValueError(f"rows [{start}, {stop}) of {assignment.info.name} are not multiples of {align}")
    num_rows = stop - start
    row_bytes = 4 * math.prod(shape[1:])
    max_rows = num_rows if len(shape) == 1 else max(align, PIECE_BYTES // row_bytes // align * align)
    num_pieces = -(-num_rows // max_rows)
    step = -(-num_rows // num_pieces // align) * align
    for first in range(start, stop, step):
        yield Piece(assignment, first, min(first + step, stop))


def read_codes(file: QuantizedFile, piece: Piece) -> Fields:
    """Codes `[stop - start, in]` and scales `[stop - start]` as the file has them, transformed."""
    codes, scales = file.read_codes(piece.assignment.info.name, piece.start, piece.stop)
    return _transformed(piece, {"codes": codes, "scales": scales})


def read_fields(file: PackedFile, piece: Piece) -> Fields:
    """The fields of packed blocks as the file has them, transformed."""
    return _transformed(piece, file.read_fields(piece.assignment.info.name, piece.start, piece.stop))


def _transformed(piece: Piece, fields: Fields) -> Fields:
    return {name: piece.assignment.transform(rows) for name, rows in fields.items()}


def read_piece(file: TensorFile, piece: Piece, dtype: np.dtype) -> np.ndarray:
    """The piece `[stop - start, ...]`, decoded, transformed and cast to the leaf's dtype."""
    info = piece.assignment.info
    if len(info.shape) == 1:
        rows = file.read_rows(info.name, 0, 1)[0, piece.start : piece.stop]
    else:
        inner = math.prod(info.shape[1:-1])
        rows = file.read_rows(info.name, piece.start * inner, piece.stop * inner)
        rows = rows.reshape(-1, *info.shape[1:])
    return piece.assignment.transform(rows).astype(dtype, copy=False)
