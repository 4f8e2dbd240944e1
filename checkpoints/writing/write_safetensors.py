"""Host: a tree is written as safetensors files with Hugging Face names; complete files are left as they are."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.safetensors_write import INDEX, index_of, plan_shards, write_shard
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.parts import SavedTree
from checkpoints.mapping.rules import Rule
from checkpoints.quantized.forms.written_form import WrittenForm
from checkpoints.writing.conversion_manifest import ConversionManifest
from checkpoints.writing.reverse_rules import written_tensors
from checkpoints.writing.written_parts import InputSums, WrittenParts, WrittenTensorPart

_NAMES = {"float32": "F32", "bfloat16": "BF16"}


def parts_to_write(
    tree: SavedTree,
    rules: Sequence[Rule],
    leaves: Leaves,
    dtype: np.dtype,
    form: WrittenForm | None = None,
    whole: frozenset[str] = frozenset(),
    sums: InputSums | None = None,
) -> Sequence[WrittenTensorPart]:
    """All tensors in `dtype`, norms too, as Hugging Face folders hold them.

    rules: those of the "hf" spelling. form: of the layers' matrices; None: they are like the others. whole: leaves, by
    their names in a layer, that are written in float32. sums: of the inputs of the layers' matrices, for a form
    that needs them. Raises `CheckpointError` where a matrix has no such form.
    """
    written = WrittenParts(leaves, dtype, form, whole, sums)
    tensors = written_tensors(tree, rules, _NAMES[dtype.name], dtype.itemsize)
    return [part for tensor in tensors for part in written.of(tensor)]


def write_safetensors(
    folder: Path,
    parts: Sequence[WrittenTensorPart],
    manifest: ConversionManifest,
    progress: Progress,
    *,
    max_shard_bytes: int,
) -> None:
    """Writes these tensors. `progress(done, total)` is called after each, in bytes."""
    makers = {part.info.name: part.make for part in parts}
    shards = plan_shards([part.info for part in parts], max_shard_bytes)
    total, done = sum(part.info.nbytes for part in parts), 0

    def make(info: TensorInfo) -> np.ndarray:
        nonlocal done
        values = makers[info.name]()
        done += info.nbytes
        progress(done, total)
        return values

    for name, infos in shards.items():
        if manifest.has(name):
            done += sum(info.nbytes for info in infos)
            progress(done, total)
            continue
        write_shard(folder / name, infos, make)
        manifest.add(name)
    if len(shards) > 1:
        write_json(folder / INDEX, index_of(shards))
        manifest.add(INDEX)
