"""Device: *own* leaves: what a tree has for a part of an Orbax folder."""

from collections.abc import Set
from typing import Any

import jax
import numpy as np

from checkpoints.mapping.parts import Part
from checkpoints.mapping.trees import by_path, is_tuple

Arrays = dict[str, Any]
"""Arrays or leaves by their paths, or by their names in a part."""


def own_leaf(leaf: Any, part: Part) -> Any:
    """The whole leaf, or the part's layer where the leaf is a tuple. A packed matrix is one leaf of several arrays, of
    which some may be tuples."""

    def of_layer(array: Any) -> Any:
        return array if part.index is None or not is_tuple(array) else array[part.index]

    return jax.tree.map(of_layer, leaf, is_leaf=is_tuple)


def stacked_paths(leaves: Arrays, part: Part) -> Set[str]:
    """The paths of arrays of all layers, of one of which the part is."""
    return {path for path, array in by_path(leaves).items() if part.index is not None and not is_tuple(array)}


def layer_index(part: Part) -> np.int32 | None:
    """The place of its layer in a stack."""
    return None if part.index is None else np.int32(part.index)
