"""Device: `load`: reads weights from an open checkpoint straight into sharded device arrays.

A few threads read, decode and cast tensors in pieces; each piece is written into the buffers that need it. In
addition to the arrays only a few pieces exist at any time, whatever the size of the model.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from checkpoints.loading.packed_leaf import PackedLeaf
from checkpoints.loading.pieces import Piece, Progress, cut, read_codes, read_piece
from checkpoints.loading.shard_buffers import Leaf, LeafTuple
from checkpoints.mapping.load_plan import plan_load
from checkpoints.mapping.rules import Rule
from checkpoints.mapping.trees import is_tuple, leaf_dtype, matrices, stacked_shape, with_matrices
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.quantized_file import QuantizedFile
from pallas_kernels.qtensor import QTensor, encode

NUM_READERS = 2

Rows = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Rows of a leaf; of a packed matrix their codes and scales."""


def load(checkpoint: Checkpoint, target: Any, rules: Sequence[Rule], *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s, filled from the checkpoint.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). `progress(done, total)` is
    called after each piece, in bytes of the file. Raises `CheckpointError` before reading if names or shapes do not
    fit.
    """
    structs = matrices(target)
    shapes = {path: _shape(struct) for path, struct in structs.items()}
    plan = plan_load(str(checkpoint.weights), checkpoint.tensors, shapes, rules)
    leaves = {path: _leaf(struct) for path, struct in structs.items()}
    # A piece that only devices of other processes need is not read here: those processes read it.
    pieces = [p for a in plan for p in cut(a) if leaves[a.leaf].needs(a.runs, p.start, p.stop)]
    total, done = sum(piece.nbytes for piece in pieces), 0

    def read(piece: Piece) -> Rows:
        struct, name = structs[piece.assignment.leaf], piece.assignment.info.name
        if isinstance(struct, QTensor):
            if isinstance(checkpoint.file, QuantizedFile) and checkpoint.file.has_row_codes(name):
                return read_codes(checkpoint.file, piece)
            return encode(read_piece(checkpoint.file, piece, np.dtype(np.float32)))
        return read_piece(checkpoint.file, piece, np.dtype(leaf_dtype(struct)))

    for piece, rows in _read_ahead(read, pieces):
        leaves[piece.assignment.leaf].fill(piece.assignment.runs, piece.start, rows)
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
    return with_matrices(target, [leaf.filled() for leaf in leaves.values()])


def _shape(struct: Any) -> tuple[int, ...]:
    """Of a matrix as it is in files."""
    return stacked_shape(struct.codes if isinstance(struct, QTensor) else struct)


def _leaf(struct: Any) -> Any:
    if isinstance(struct, QTensor):
        return PackedLeaf(struct, _leaf(struct.codes), _leaf(struct.scales))
    return LeafTuple(struct) if is_tuple(struct) else Leaf(struct)


def _read_ahead(read: Callable[[Piece], Rows], pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Rows]]:
    """Yields each piece with its rows, in order, while the readers work on the next ones."""
    with ThreadPoolExecutor(NUM_READERS, "checkpoint-reader") as pool:
        in_flight: deque[tuple[Piece, Future[Rows]]] = deque()
        for piece in pieces:
            in_flight.append((piece, pool.submit(read, piece)))
            if len(in_flight) > NUM_READERS:
                first, future = in_flight.popleft()
                yield first, future.result()
        while in_flight:
            first, future = in_flight.popleft()
            yield first, future.result()
