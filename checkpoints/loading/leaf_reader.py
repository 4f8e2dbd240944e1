"""Host: leaves of the parameter tree read from an open checkpoint into numpy arrays, one leaf of one layer at a time.

The tree is the saved one: no vocabulary padding, no repeated KV heads. At most one leaf of one layer is in memory,
whatever the size of the model.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.loading.pieces import cut, read_piece
from checkpoints.loading.plan_checkpoint import plan_checkpoint
from checkpoints.mapping.load_plan import Assignment
from checkpoints.mapping.parts import Part, SavedTree
from checkpoints.mapping.rules import Rule, Run
from checkpoints.open_checkpoint import Checkpoint


class Leaves(Protocol):
    """A source of leaves, for `writing`."""

    def read(self, part: Part, name: str) -> np.ndarray:
        """The leaf of this name in a part, without the layer axis."""
        ...


class TensorLeaves:
    """Leaves of a safetensors or GGUF checkpoint, by its rules; raises `CheckpointError` if names or shapes differ."""

    def __init__(self, checkpoint: Checkpoint, tree: SavedTree, rules: Sequence[Rule]) -> None:
        self._file, self._tree = checkpoint.file, tree
        self._assignments: dict[str, list[Assignment]] = defaultdict(list)
        for assignment in plan_checkpoint(checkpoint, tree.shapes, rules):
            self._assignments[assignment.leaf].append(assignment)

    def read(self, part: Part, name: str) -> np.ndarray:
        path = part.leaves[name]
        out = np.zeros(part.shape(self._tree.shapes[path]), self._tree.dtypes[path])
        for assignment in self._assignments[path]:
            runs = [run for run in assignment.runs if part.index is None or run.lead[0] == part.index]
            for piece in cut(assignment) if runs else ():
                rows = read_piece(self._file, piece, out.dtype)
                for run in runs:
                    _write(out[run.lead if part.index is None else run.lead[1:]], run, piece.start, rows)
        return out


class OrbaxLeaves:
    """Leaves of a folder of Orbax parts; raises `CheckpointError` where a leaf is missing, has another shape, or has no
    place in the model."""

    def __init__(self, checkpoint: Checkpoint, tree: SavedTree) -> None:
        self._file, self._tree = checkpoint.file, tree
        names = {f"{part.name}/{name}" for part in tree.parts for name in part.leaves}
        if unexpected := sorted(checkpoint.tensors.keys() - names):
            raise CheckpointError(f"{checkpoint.weights}: the model has no {', '.join(unexpected)}")
        for part in tree.parts:
            for name, path in part.leaves.items():
                info, expected = checkpoint.tensors.get(f"{part.name}/{name}"), part.shape(tree.shapes[path])
                if info is None or info.shape != expected:
                    found = "missing" if info is None else f"{list(info.shape)}"
                    raise CheckpointError(
                        f"{checkpoint.weights}: {part.name}/{name} is {found}, the model needs {list(expected)}"
                    )

    def read(self, part: Part, name: str) -> np.ndarray:
        info = self._file.tensors[f"{part.name}/{name}"]
        rows = self._file.read_rows(info.name, 0, info.num_rows).reshape(info.shape)
        return rows.astype(self._tree.dtypes[part.leaves[name]], copy=False)


def _write(out: np.ndarray, run: Run, start: int, rows: np.ndarray) -> None:
    """Writes the part of `run` that lies in `rows`, the tensor's rows from `start` on, to its place in `out`."""
    first, last = max(start, run.source), min(start + len(rows), run.source + run.num_rows)
    if first < last:
        shift = run.target - run.source
        out[first + shift : last + shift] = rows[first - start : last - start]
