"""Host: `write_orbax`: writes the leaves of a checkpoint as a folder of Orbax parts, skipping complete parts."""

from pathlib import Path

from checkpoints.formats.orbax_folder import FOLDER, remove_part, save_part
from checkpoints.formats.orbax_index import INDEX, write_index
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.parts import SavedTree
from checkpoints.writing.conversion_manifest import ConversionManifest


def write_orbax(
    folder: Path, tree: SavedTree, leaves: Leaves, manifest: ConversionManifest, progress: Progress
) -> None:
    """Fills `folder/orbax`; `progress(done, total)` is called after each part, in bytes."""
    root = folder / FOLDER
    root.mkdir(exist_ok=True)
    (root / INDEX).unlink(missing_ok=True)
    total, done = sum(tree.num_bytes(part) for part in tree.parts), 0
    for part in tree.parts:
        name = f"{FOLDER}/{part.name}"
        if not manifest.has(name):
            remove_part(root, part.name)
            save_part(root, part.name, {leaf: leaves.read(part, leaf) for leaf in part.leaves})
            manifest.add(name)
        done += tree.num_bytes(part)
        progress(done, total)
    write_index(root, tree.index)
    manifest.add(f"{FOLDER}/{INDEX}")
