"""Host: `write_safetensors`: writes a tree as safetensors files with Hugging Face names, skipping complete files."""

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
from checkpoints.writing.conversion_manifest import ConversionManifest
from checkpoints.writing.reverse_rules import TensorBuilder, written_tensors

_NAMES = {"float32": "F32", "bfloat16": "BF16"}


def write_safetensors(
    folder: Path,
    tree: SavedTree,
    rules: Sequence[Rule],
    leaves: Leaves,
    manifest: ConversionManifest,
    progress: Progress,
    *,
    dtype: np.dtype,
    max_shard_bytes: int,
) -> None:
    """Writes all tensors in `dtype`, norms too, as Hugging Face folders hold them.

    rules: those of the "hf" spelling. `progress(done, total)` is called after each tensor, in bytes.
    """
    tensors = {t.info.name: t for t in written_tensors(tree, rules, _NAMES[dtype.name], dtype.itemsize)}
    shards = plan_shards([tensor.info for tensor in tensors.values()], max_shard_bytes)
    builder = TensorBuilder(leaves, dtype)
    total, done = sum(tensor.info.nbytes for tensor in tensors.values()), 0

    def make(info: TensorInfo) -> np.ndarray:
        nonlocal done
        values = builder.build(tensors[info.name])
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
