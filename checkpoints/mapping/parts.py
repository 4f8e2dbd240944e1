"""Host: divides a tree into parts for saving: one part for the leaves outside the layers, one part per layer.

A part is written and read whole, so memory grows by one layer only, and an interrupted conversion resumes
after the last complete part.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

OUTSIDE = "outside"
_LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class Part:
    """leaves: path in the tree by name in the part. index: the layer's position in its stack."""

    name: str
    leaves: dict[str, str]
    index: int | None = None

    def shape(self, leaf_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape, in the part, of a leaf of this shape: a layer is saved without the layer axis."""
        return leaf_shape if self.index is None else leaf_shape[1:]


def parts_of(paths: Iterable[str], layer_slots: Sequence[tuple[str, int]]) -> tuple[Part, ...]:
    """The parts of a tree of these paths ("embed", "layers/<stack>/qkv"); for `layer_slots` see `rules.ModelDims`."""
    outside: dict[str, str] = {}
    by_stack: dict[str, dict[str, str]] = {}
    for path in paths:
        first, _, rest = path.partition("/")
        if first == _LAYERS:
            stack, _, name = rest.partition("/")
            by_stack.setdefault(stack, {})[name.replace("/", ".")] = path
        else:
            outside[path.replace("/", ".")] = path
    layers = (Part(f"layer-{i:05}", by_stack[stack], index) for i, (stack, index) in enumerate(layer_slots))
    return (Part(OUTSIDE, outside), *layers)


@dataclass(frozen=True)
class SavedTree:
    """A tree in its saved form: shape (layers stacked) and dtype of each leaf by path, and the parts."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any]]
    layer_slots: tuple[tuple[str, int], ...]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return parts_of(self.shapes, self.layer_slots)

    def num_bytes(self, part: Part) -> int:
        return sum(
            math.prod(part.shape(self.shapes[path])) * self.dtypes[path].itemsize for path in part.leaves.values()
        )

    @property
    def index(self) -> dict[str, dict[str, tuple[tuple[int, ...], str]]]:
        """(shape, dtype name) of every leaf of every part."""
        return {
            part.name: {
                name: (part.shape(self.shapes[path]), self.dtypes[path].name) for name, path in part.leaves.items()
            }
            for part in self.parts
        }
