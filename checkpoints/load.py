"""Device: `load`: reads weights from an open checkpoint straight into sharded device arrays.

A few threads read, decode and cast tensors in pieces; each piece is written into the buffers that need it. In
addition to the arrays only a few pieces exist at any time, whatever the size of the model.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from checkpoints.loading.pieces import Piece, Progress, cut, read_piece
from checkpoints.loading.shard_buffers import Leaf, LeafTuple
from checkpoints.mapping.load_plan import plan_load
from checkpoints.mapping.rules import Rule
from checkpoints.mapping.trees import by_path, is_tuple, leaf_dtype, stacked_shape, with_leaves
from checkpoints.open_checkpoint import Checkpoint

NUM_READERS = 2


def load(checkpoint: Checkpoint, target: Any, rules: Sequence[Rule], *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s, filled from the checkpoint.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). `progress(done, total)` is
    called after each piece, in bytes of the file. Raises `CheckpointError` before reading if names or shapes do not
    fit.
    """
    structs = by_path(target)
    shapes = {path: stacked_shape(struct) for path, struct in structs.items()}
    plan = plan_load(str(checkpoint.weights), checkpoint.tensors, shapes, rules)
    leaves = {path: LeafTuple(s) if is_tuple(s) else Leaf(s) for path, s in structs.items()}
    # A piece that only devices of other processes need is not read here: those processes read it.
    pieces = [p for a in plan for p in cut(a) if leaves[a.leaf].needs(a.runs, p.start, p.stop)]
    total, done = sum(piece.nbytes for piece in pieces), 0

    def read(piece: Piece) -> np.ndarray:
        return read_piece(checkpoint.file, piece, np.dtype(leaf_dtype(structs[piece.assignment.leaf])))

    for piece, rows in _read_ahead(read, pieces):
        leaves[piece.assignment.leaf].fill(piece.assignment.runs, piece.start, rows)
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
    return with_leaves(target, [leaf.filled() for leaf in leaves.values()])


def _read_ahead(read: Callable[[Piece], np.ndarray], pieces: Sequence[Piece]) -> Iterator[tuple[Piece, np.ndarray]]:
    """Yields each piece with its rows, in order, while the readers work on the next ones."""
    with ThreadPoolExecutor(NUM_READERS, "checkpoint-reader") as pool:
        in_flight: deque[tuple[Piece, Future[np.ndarray]]] = deque()
        for piece in pieces:
            in_flight.append((piece, pool.submit(read, piece)))
            if len(in_flight) > NUM_READERS:
                first, future = in_flight.popleft()
                yield first, future.result()
        while in_flight:
            first, future = in_flight.popleft()
            yield first, future.result()
