"""Device: saves and restores parameter trees as a folder of Orbax parts, on any mesh.

`saved` gives the shape of every leaf in its saved form: vocabulary unpadded, KV heads not repeated, layers stacked; of
a packed matrix that of its values. Parts are handled one by one, so in addition to the tree only one layer exists at
any time. An *own* leaf of a part is what the tree has for it: a whole leaf, or the part's layer where the leaf is a
tuple. A packed matrix is one leaf of several arrays, of which some may be tuples.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.orbax_folder import OrbaxFile, load_part, save_part
from checkpoints.formats.orbax_index import DTYPES, INDEX, Entry, write_index
from checkpoints.formats.saved_matrix import form_keys
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.canonical import divisible
from checkpoints.mapping.parts import Part, parts_of
from checkpoints.mapping.rules import ModelDims, Shapes
from checkpoints.mapping.saved_packing import can_be, from_saved, to_saved
from checkpoints.mapping.trees import by_path, is_tuple, matrices, with_leaves

Arrays = dict[str, Any]


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
        own = {name: _own(leaves[path], part) for name, path in part.leaves.items()}
        stacked = _stacked({name: leaves[path] for name, path in part.leaves.items()}, part)
        shapes = {name: part.shape(saved[path]) for name, path in part.leaves.items()}
        if (kind := tuple(part.leaves.values())) not in takers:
            takers[kind] = _taker(own, stacked, shapes, dims.head_dim)
        taken = takers[kind](own, _layer_index(part))
        arrays = {path.replace("/", "."): array for path, array in by_path(taken).items()}
        save_part(root, part.name, arrays)
        index[part.name] = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
        forms[part.name] = {name: key for name, leaf in taken.items() if (key := form_keys(leaf)) is not None}
    if jax.process_index() == 0:
        write_index(root, index, forms)


def restore(file: OrbaxFile, target: Any, saved: Shapes, dims: ModelDims, *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s: every device reads its own shard of each part.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). Matrices that the target has
    packed are so in the file, in the saved form of theirs; others are decoded. `progress(done, total)` is called after
    each part, in bytes. Raises `CheckpointError` before reading if leaves or shapes do not fit.
    """
    leaves, structs = matrices(target), by_path(target)
    parts = parts_of(leaves, dims.layer_slots)
    _check(file, parts, saved, leaves)
    stacked = {path for part in parts for path in _stacked({path: leaves[path] for path in part.leaves.values()}, part)}
    found: Arrays = _zeros({path: structs[path] for path in structs if path in stacked})
    total, done = sum(info.nbytes for info in file.tensors.values()), 0
    fillers: dict[Any, Any] = {}
    for part in parts:
        own = {path: _own(leaves[path], part) for path in part.leaves.values()}
        read = _read(file, part, own, stacked)
        if (kind := tuple(own)) not in fillers:
            fillers[kind] = _filler(own, stacked, dims.head_dim)
        stacks = {path: found[path] for path in by_path(own) if path in stacked}
        filled = fillers[kind](stacks, {path: read[name] for name, path in part.leaves.items()}, _layer_index(part))
        jax.block_until_ready(filled)
        for path, leaf in filled.items():
            found[path] = (*found.get(path, ()), leaf) if is_tuple(structs[path]) else leaf
        done += sum(info.nbytes for info in file.arrays_of(part.name).values())
        if progress is not None:
            progress(done, total)
    return with_leaves(target, [found[path] for path in structs])


def _own(leaf: Any, part: Part) -> Any:
    def of_layer(array: Any) -> Any:
        return array if part.index is None or not is_tuple(array) else array[part.index]

    return jax.tree.map(of_layer, leaf, is_leaf=is_tuple)


def _stacked(leaves: Arrays, part: Part) -> Set[str]:
    """The paths of arrays of all layers, of one of which the part is."""
    return {path for path, array in by_path(leaves).items() if part.index is not None and not is_tuple(array)}


def _read(file: OrbaxFile, part: Part, own: Arrays, stacked: Set[str]) -> Arrays:
    """The leaves of a part by their names in it; packed matrices whose inputs are in a possible order."""
    infos, packed = file.arrays_of(part.name), file.packed_of(part.name)
    structs: Arrays = {}
    for name, path in part.leaves.items():
        first, like = next(iter(by_path({path: own[path]}).items()))
        for array in packed[name].arrays if name in packed else (name,):
            shape, dtype = infos[array].shape, DTYPES[infos[array].dtype]
            of_rows = shape if len(shape) > 1 else ()  # all inputs are read by all devices
            sharding = divisible(of_rows, _sharding(like), is_stacked=first in stacked)
            structs[array] = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    read, where = load_part(file.root, part.name, structs), str(file.root / part.name)
    return {name: packed[name].checked(where, read) if name in packed else read[name] for name in part.leaves}


def _check(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes, leaves: Arrays) -> None:
    problems = list(_misfits(file, parts, saved, leaves))
    if problems:
        raise CheckpointError(f"{file.root}: {len(problems)} leaves do not fit the model{listed(problems)}")


def _misfits(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes, leaves: Arrays) -> Iterator[str]:
    paths = {f"{part.name}/{name}": (part, path) for part in parts for name, path in part.leaves.items()}
    for name in sorted(paths.keys() | file.tensors.keys()):
        if name not in paths:
            yield f"unexpected: {name}"
            continue
        part, path = paths[name]
        shape, found = part.shape(saved[path]), file.tensors.get(name)
        if found is None:
            yield f"missing: {name}"
        elif found.shape != shape:
            yield f"shape: {name} is {list(found.shape)}, the model needs {list(shape)}"
        elif not can_be(file.packed_of(part.name).get(name.partition("/")[2]), leaves[path]):
            yield f"form: {name} is {found.dtype}, from which that of the engine cannot be made"


def _sharding(struct: jax.ShapeDtypeStruct) -> Sharding:
    return struct.sharding or jnp.zeros(()).sharding


def _zeros(structs: Mapping[str, jax.ShapeDtypeStruct]) -> Arrays:
    def make() -> Arrays:
        return {path: jnp.zeros(struct.shape, struct.dtype) for path, struct in structs.items()}

    return cast(Arrays, jax.jit(make, out_shardings={path: _sharding(s) for path, s in structs.items()})())


def _layer_index(part: Part) -> np.int32 | None:
    return None if part.index is None else np.int32(part.index)


def _filler(own: Arrays, stacked: Set[str], head_dim: int) -> Callable[..., Arrays]:
    """(stacks, leaves of a part, index) → the own arrays: the donated stacks with that layer written in place."""
    structs = by_path(own)

    def shape_of(path: str, struct: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(struct.shape[1:] if path in stacked else struct.shape, struct.dtype)

    of_layer: Arrays = with_leaves(own, [shape_of(path, struct) for path, struct in structs.items()])

    def fill(stacks: Arrays, read: Arrays, index: jax.Array | None) -> Arrays:
        arrays = by_path({path: from_saved(read[path], struct, head_dim) for path, struct in of_layer.items()})
        updated = {path: jax.lax.dynamic_update_index_in_dim(s, arrays[path], index, 0) for path, s in stacks.items()}
        return arrays | updated

    out_shardings = {path: _sharding(struct) for path, struct in structs.items()}
    return jax.jit(fill, donate_argnums=0, out_shardings=out_shardings)


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
