"""Device: `load`: reads weights from an open checkpoint straight into sharded device arrays.

A few threads read, decode and cast tensors in pieces; each piece is written into the buffers that need it. In
addition to the arrays only a few pieces exist at any time, whatever the size of the model.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from checkpoints.loading.packed_leaf import ORDER, PackedLeaf, PartsLeaf
from checkpoints.loading.pieces import Fields, Piece, Progress, cut, read_codes, read_fields, read_piece
from checkpoints.loading.plan_checkpoint import plan_checkpoint
from checkpoints.loading.shard_buffers import Leaf, LeafTuple
from checkpoints.loading.stored_outliers import COLUMNS, check_columns, read_outliers
from checkpoints.mapping.rules import Rule
from checkpoints.mapping.trees import is_tuple, leaf_dtype, matrices, stacked_shape, with_matrices
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.forms.fp8_scales import row_scales
from checkpoints.quantized.packed_file import PackedFile
from checkpoints.quantized.quantized_file import QuantizedFile
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import ALL_SCHEMES, FP8, QTensor, encode

NUM_READERS = 2

Rows = np.ndarray | Fields
"""Rows of a leaf; of a packed matrix those of its fields."""


def load(checkpoint: Checkpoint, target: Any, rules: Sequence[Rule], *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s, filled from the checkpoint.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). `progress(done, total)` is
    called after each piece, in bytes of the file. Raises `CheckpointError` before reading if names or shapes do not
    fit.
    """
    structs = matrices(target)
    shapes = {path: _shape(struct) for path, struct in structs.items()}
    plan = plan_checkpoint(checkpoint, shapes, rules)
    with_outliers = {
        path for path, struct in structs.items() if isinstance(struct, QTensor) and struct.columns is not None
    }
    if with_outliers:
        assert isinstance(checkpoint.file, QuantizedFile)
        check_columns(checkpoint.file, plan, with_outliers)
    leaves = {path: _leaf(struct) for path, struct in structs.items()}
    # A piece that only devices of other processes need is not read here: those processes read it.
    pieces = [p for a in plan for p in cut(a) if leaves[a.leaf].needs(a.runs, p.start, p.stop)]
    total, done = sum(piece.nbytes for piece in pieces), 0

    def read(piece: Piece) -> Rows:
        struct, name = structs[piece.assignment.leaf], piece.assignment.info.name
        if isinstance(struct, BlockTensor | RowParts):
            assert isinstance(checkpoint.file, PackedFile)
            fields = read_fields(checkpoint.file, piece)
            order = checkpoint.file.order_of(name) if isinstance(checkpoint.file, QuantizedFile) else None
            return fields if order is None else {**fields, ORDER: order[None]}
        if isinstance(struct, QTensor):
            if isinstance(checkpoint.file, QuantizedFile):
                stored = checkpoint.file.row_scheme_of(name)
                if stored is not None and ALL_SCHEMES[stored].codes == struct.scheme.codes:
                    fields = read_codes(checkpoint.file, piece)
                    if struct.columns is None:
                        return fields
                    return {**fields, **read_outliers(checkpoint.file, piece, struct.outliers.dtype)}
            values = read_piece(checkpoint.file, piece, np.dtype(np.float32))
            codes, scales = encode(values, struct.scheme, row_scales(values) if struct.scheme == FP8 else None)
            return {"codes": codes, "scales": scales}
        return read_piece(checkpoint.file, piece, np.dtype(leaf_dtype(struct)))

    for piece, rows in _read_ahead(read, pieces):
        leaves[piece.assignment.leaf].fill(piece.assignment.runs, piece.start, rows)
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
    return with_matrices(target, [leaf.filled() for leaf in leaves.values()])


def _shape(struct: Any) -> tuple[int, ...]:
    """Of a matrix as it is in files."""
    if isinstance(struct, RowParts):
        shapes = [_shape(part) for part in struct.parts]
        return (*shapes[0][:-2], sum(shape[-2] for shape in shapes), shapes[0][-1])
    if isinstance(struct, BlockTensor):
        *rows, num_values = stacked_shape(struct.fields[struct.form.fields[0].name])
        return (*rows, struct.form.num_inputs(num_values))
    return stacked_shape(struct.codes if isinstance(struct, QTensor) else struct)


def _leaf(struct: Any) -> Any:
    if isinstance(struct, QTensor):
        fields = {"codes": _leaf(struct.codes), "scales": _leaf(struct.scales)}
        if struct.columns is None:
            return PackedLeaf(struct, fields)
        return PackedLeaf(struct, {**fields, "outliers": _leaf(struct.outliers)}, {COLUMNS: Leaf(struct.columns)})
    if isinstance(struct, RowParts):
        return PartsLeaf([(_shape(part)[-2], _leaf(part)) for part in struct.parts])
    if isinstance(struct, BlockTensor):
        of_inputs = {} if struct.order is None else {ORDER: Leaf(struct.order)}
        return PackedLeaf(struct, {name: _leaf(field) for name, field in struct.fields.items()}, of_inputs)
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
