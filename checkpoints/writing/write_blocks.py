"""Host: a tree is written as one GGUF file whose matrices are blocks; vectors and tables are float32."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf_write import write_gguf
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.parts import SavedTree
from checkpoints.mapping.rules import Rule
from checkpoints.quantized.forms.written_form import finite, pieces_of
from checkpoints.quantized.ggml_blocks import BLOCK_LEN, GGML_BLOCKS, GgmlBlocks
from checkpoints.quantized.quantized_weight import Misfit
from checkpoints.writing.reverse_rules import TensorBuilder, WrittenTensor, written_tensors

FLOAT = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class BlockTypes:
    """In which blocks matrices are written: those of the layers, and those outside: the embedding and the head."""

    layers: GgmlBlocks
    ends: GgmlBlocks
    file_type: int  # `general.file_type` of files that are mostly so


BLOCK_TYPES = {
    "q8_0": BlockTypes(GGML_BLOCKS["Q8_0"], GGML_BLOCKS["Q8_0"], 7),
    "q4_0": BlockTypes(GGML_BLOCKS["Q4_0"], GGML_BLOCKS["Q8_0"], 2),
}
"""By the names of schemes."""


def write_blocks(
    path: Path,
    types: BlockTypes,
    tree: SavedTree,
    rules: Sequence[Rule],
    leaves: Leaves,
    metadata: Mapping[str, Any],
    tables: Mapping[str, np.ndarray],
    progress: Progress,
    job: dict[str, Any],
    *,
    is_renewed: bool = False,
) -> None:
    """Writes `path`, which appears when it is complete. rules: those of the "gguf" spelling. tables: further vectors
    by their names. progress(done, total): called after each piece of a tensor, in bytes of the file. job, is_renewed:
    as of `resumable_file`; tensors that an interrupted call has completed are not computed again.

    In memory are one leaf of a layer, or the embedding, in float32, a copy of one of its tensors, and a few pieces of
    16 MiB. Raises `CheckpointError` for a matrix whose rows are no whole blocks, before anything is written, and
    for values that are not finite.
    """
    written = {tensor.info.name: tensor for tensor in written_tensors(tree, rules, "F32", FLOAT.itemsize)}
    infos = [TensorInfo(name, table.shape, "F32", table.size * FLOAT.itemsize) for name, table in tables.items()]
    infos += [_declared(tensor, types) for tensor in written.values()]
    builder = TensorBuilder(leaves, FLOAT)
    *starts, total = accumulate((info.nbytes for info in infos), initial=0)
    start_of = dict(zip((info.name for info in infos), starts, strict=True))

    def make(info: TensorInfo) -> Iterator[np.ndarray]:
        done = start_of[info.name]
        values = tables[info.name].astype(FLOAT) if info.name in tables else builder.build(written[info.name])
        for piece in _stored(info, values):
            yield piece
            done += piece.nbytes
            progress(done, total)

    metadata = {**metadata, "general.file_type": types.file_type}
    write_gguf(path, metadata, infos, make, job, is_renewed=is_renewed)


def _declared(tensor: WrittenTensor, types: BlockTypes) -> TensorInfo:
    info = tensor.info
    if len(info.shape) < 2:
        return info
    blocks = types.ends if tensor.part.index is None else types.layers
    if info.row_len % BLOCK_LEN:
        raise CheckpointError(f"{info.name} cannot be quantized: {info.row_len} inputs are no multiple of {BLOCK_LEN}")
    return replace(info, dtype=blocks.name, nbytes=blocks.num_bytes(math.prod(info.shape)))


def _stored(info: TensorInfo, values: np.ndarray) -> Iterator[np.ndarray]:
    """The bytes of a tensor, in pieces."""
    try:
        if info.dtype not in GGML_BLOCKS:
            yield finite(values)
            return
        for rows in pieces_of(values):
            yield GGML_BLOCKS[info.dtype].encode(finite(rows))
    except Misfit as misfit:
        raise CheckpointError(f"{info.name} cannot be quantized: {misfit}") from misfit
