"""Host: rules in reverse: the tensors of a Hugging Face folder, built from the leaves of the tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.mapping.parts import Part, SavedTree
from checkpoints.mapping.rules import Rule, Run
from checkpoints.mapping.transforms import Transform


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """One tensor to write, with its leaf and the runs of rows that it is built from."""

    info: TensorInfo
    part: Part
    leaf: str
    runs: tuple[Run, ...]
    transform: Transform


def written_tensors(tree: SavedTree, rules: Sequence[Rule], dtype: str, itemsize: int) -> Iterator[WrittenTensor]:
    """All tensors of this tree by the rules, leaf by leaf; `dtype` is the format's name."""
    shapes = tree.shapes
    sources: dict[tuple[str, int | None], list[tuple[Rule, int]]] = {}
    for rule in rules:
        for layer in rule.layers:
            if (path := rule.leaf(layer)) in shapes:
                index = rule.dims.layer_slots[layer][1] if rule.is_stacked else None
                sources.setdefault((path, index), []).append((rule, layer))
    for part in tree.parts:
        for name, path in part.leaves.items():
            for rule, layer in sources[path, part.index]:
                runs = rule.runs(layer, shapes[path])
                shape = (sum(run.num_rows for run in runs), *shapes[path][len(runs[0].lead) + 1 :])
                info = TensorInfo(rule.tensor_name(layer), shape, dtype, int(np.prod(shape)) * itemsize)
                yield WrittenTensor(info, part, name, runs, rule.transform)


class TensorBuilder:
    """Builds tensors from leaves; keeps the last leaf, which the next tensor often shares."""

    def __init__(self, leaves: Leaves, dtype: np.dtype[Any]) -> None:
        self._leaves, self._dtype = leaves, dtype
        self._last: tuple[str, str] | None = None
        self._leaf = np.empty(0)

    def build(self, tensor: WrittenTensor) -> np.ndarray:
        key = (tensor.part.name, tensor.leaf)
        if self._last != key:
            self._last, self._leaf = None, np.empty(0)  # at most one leaf in memory
            self._leaf = self._leaves.read(tensor.part, tensor.leaf)
            self._last = key
        is_stacked = tensor.part.index is not None
        runs = sorted(tensor.runs, key=lambda run: run.source)
        rows = [self._leaf[run.lead[is_stacked:]][run.target : run.target + run.num_rows] for run in runs]
        joined = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return tensor.transform.inverse(joined).astype(self._dtype, copy=False)
