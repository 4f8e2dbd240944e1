"""Device: saves a parameter tree as a folder of Orbax parts, on any mesh.

Every leaf is saved in its saved form, of whose values `saved` gives the shape: vocabulary unpadded, KV heads not
repeated, layers stacked. Parts are written one by one, so in addition to the tree only one layer exists at any time.
"""

from collections.abc import Callable, Set
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from checkpoints.formats.orbax_folder import save_part
from checkpoints.formats.orbax_index import INDEX, Entry, write_index
from checkpoints.formats.saved_form_keys import keys_of
from checkpoints.mapping.canonical import divisible
from checkpoints.mapping.own_leaves import Arrays, layer_index, own_leaf, stacked_paths
from checkpoints.mapping.parts import parts_of
from checkpoints.mapping.rules import ModelDims, Shapes
from checkpoints.mapping.saved_packing import to_saved
from checkpoints.mapping.trees import by_path, matrices, with_leaves


def save(root: Path, tree: Any, saved: Shapes, dims: ModelDims) -> None:
    """Saves a tree of arrays; on several hosts each writes the shards of its devices."""
    leaves = matrices(tree)
    parts = parts_of(leaves, dims.layer_slots)
    if jax.process_index() == 0:
        root.mkdir(parents=True, exist_ok=True)
        (root / INDEX).unlink(missing_ok=True)
    takers: dict[Any, Any] = {}
    index, forms = dict[str, dict[str, Entry]](), dict[str, dict[str, Any]]()
    for part in parts:
        own = {name: own_leaf(leaves[path], part) for name, path in part.leaves.items()}
        stacked = stacked_paths({name: leaves[path] for name, path in part.leaves.items()}, part)
        shapes = {name: part.shape(saved[path]) for name, path in part.leaves.items()}
        if (kind := tuple(part.leaves.values())) not in takers:
            takers[kind] = _taker(own, stacked, shapes, dims.head_dim)
        taken = takers[kind](own, layer_index(part))
        arrays = {path.replace("/", "."): array for path, array in by_path(taken).items()}
        save_part(root, part.name, arrays)
        index[part.name] = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
        forms[part.name] = {name: key for name, leaf in taken.items() if (key := keys_of(leaf)) is not None}
    if jax.process_index() == 0:
        write_index(root, index, forms)


def _taker(own: Arrays, stacked: Set[str], shapes: Shapes, head_dim: int) -> Callable[..., Arrays]:
    """(own leaves, index) → one part's leaves in their saved form. shapes: of their values. stacked: paths of arrays of
    all layers."""

    def take(own: Arrays, index: jax.Array | None) -> Arrays:
        arrays = [
            jax.lax.dynamic_index_in_dim(array, index, 0, keepdims=False) if path in stacked else array
            for path, array in by_path(own).items()
        ]
        layers: Arrays = with_leaves(own, arrays)
        return {name: to_saved(leaf, shapes[name], head_dim) for name, leaf in layers.items()}

    taken: Arrays = jax.eval_shape(take, own, np.int32(0))
    out: Arrays = {}
    for name, leaf in own.items():
        path, like = next(iter(by_path({name: leaf}).items()))
        place = partial(_place, like.sharding, is_stacked=path in stacked)
        out[name] = jax.tree.map(place, taken[name])
    return jax.jit(take, out_shardings=out)


def _place(like: Sharding, struct: jax.ShapeDtypeStruct, *, is_stacked: bool) -> Sharding:
    return divisible(struct.shape, like, is_stacked=is_stacked)
