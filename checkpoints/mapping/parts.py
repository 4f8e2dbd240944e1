"""Host: how a tree is divided for saving: one part for the leaves outside the layers, one for each layer.

A part is written and read whole, so memory beside the tree stays at one layer, and an interrupted conversion goes on
behind the last part.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

OUTSIDE = "outside"
_LAYERS = "layers"


@dataclass(frozen=True, slots=True)
class Part:
    """`leaves` maps names in the part to paths in the tree; `index` is the layer's place in the stacks of its kind."""

    name: str
    leaves: dict[str, str]
    index: int | None = None

    def shape(self, leaf_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in the part of a leaf of this shape: a layer is saved without the axis of its stack."""
        return leaf_shape if self.index is None else leaf_shape[1:]


def parts_of(paths: Iterable[str], layer_slots: Sequence[tuple[str, int]]) -> tuple[Part, ...]:
    """The parts of a tree of these paths ("embed", "layers/<kind>/qkv"); for `layer_slots` see `rules.ModelDims`."""
    outside: dict[str, str] = {}
    kinds: dict[str, dict[str, str]] = {}
    for path in paths:
        first, _, rest = path.partition("/")
        if first == _LAYERS:
            kind, _, name = rest.partition("/")
            kinds.setdefault(kind, {})[name.replace("/", ".")] = path
        else:
            outside[path.replace("/", ".")] = path
    layers = (Part(f"layer-{i:05}", kinds[kind], index) for i, (kind, index) in enumerate(layer_slots))
    return (Part(OUTSIDE, outside), *layers)


@dataclass(frozen=True)
class SavedTree:
    """A tree as it is saved: shape (layers stacked) and dtype of each leaf by its path, and its parts."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
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
        """(shape, name of the dtype) of every leaf of every part."""
        return {
            part.name: {
                name: (part.shape(self.shapes[path]), self.dtypes[path].name) for name, path in part.leaves.items()
            }
            for part in self.parts
        }
