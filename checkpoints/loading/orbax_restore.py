"""Device: restores a parameter tree from a folder of Orbax parts, on any mesh.

`saved` gives the shape of every leaf in its saved form: vocabulary unpadded, KV heads not repeated, layers stacked; of
a packed matrix that of its values. Parts are read one by one, so in addition to the tree only one layer exists at any
time.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Sharding

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.orbax_folder import OrbaxFile, load_part
from checkpoints.formats.orbax_index import DTYPES
from checkpoints.formats.saved_matrix import SavedMatrix
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.canonical import divisible
from checkpoints.mapping.own_leaves import Arrays, layer_index, own_leaf, stacked_paths
from checkpoints.mapping.parts import Part, parts_of
from checkpoints.mapping.row_parts import has_parts, part_shapes
from checkpoints.mapping.rules import ModelDims, Shapes
from checkpoints.mapping.saved_packing import can_be, from_saved
from checkpoints.mapping.trees import by_path, is_tuple, matrices, with_leaves


def restore(file: OrbaxFile, target: Any, saved: Shapes, dims: ModelDims, *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s: every device reads its own shard of each part.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). Matrices that the target has
    packed are so in the file, in the saved form of theirs; others are decoded. `progress(done, total)` is called after
    each part, in bytes. Raises `CheckpointError` before reading if leaves or shapes do not fit.
    """
    leaves, structs = matrices(target), by_path(target)
    parts = parts_of(leaves, dims.layer_slots)
    _check(file, parts, saved, leaves, dims.head_dim)
    stacked = set[str]()
    for part in parts:
        stacked |= stacked_paths({path: leaves[path] for path in part.leaves.values()}, part)
    found: Arrays = _zeros({path: structs[path] for path in structs if path in stacked})
    total, done = sum(info.nbytes for info in file.tensors.values()), 0
    fillers: dict[Any, Any] = {}
    for part in parts:
        own = {path: own_leaf(leaves[path], part) for path in part.leaves.values()}
        read = _read(file, part, own, stacked)
        if (kind := tuple(own)) not in fillers:
            fillers[kind] = _filler(own, stacked, dims.head_dim)
        stacks = {path: found[path] for path in by_path(own) if path in stacked}
        filled = fillers[kind](stacks, {path: read[name] for name, path in part.leaves.items()}, layer_index(part))
        jax.block_until_ready(filled)
        for path, leaf in filled.items():
            found[path] = (*found.get(path, ()), leaf) if is_tuple(structs[path]) else leaf
        done += sum(info.nbytes for info in file.arrays_of(part.name).values())
        if progress is not None:
            progress(done, total)
    return with_leaves(target, [found[path] for path in structs])


def _check(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes, leaves: Arrays, head_dim: int) -> None:
    problems = list(_misfits(file, parts, saved, leaves, head_dim))
    if problems:
        raise CheckpointError(f"{file.root}: {len(problems)} leaves do not fit the model{listed(problems)}")


def _misfits(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes, leaves: Arrays, head_dim: int) -> Iterator[str]:
    paths = {f"{part.name}/{name}": (part, path) for part in parts for name, path in part.leaves.items()}
    for name in sorted(paths.keys() | file.tensors.keys()):
        if name not in paths:
            yield f"unexpected: {name}"
            continue
        part, path = paths[name]
        shape, found = part.shape(saved[path]), file.tensors.get(name)
        matrix = file.packed_of(part.name).get(name.partition("/")[2])
        if found is None:
            yield f"missing: {name}"
        elif found.shape != shape:
            yield f"shape: {name} is {list(found.shape)}, the model needs {list(shape)}"
        elif matrix is not None and not _has_its_parts(matrix, path, shape, head_dim):
            yield f"parts: {name} is rows of the shapes {list(matrix.part_shapes)}, not queries, keys and values"
        elif not can_be(matrix, leaves[path]):
            yield f"form: {name} is {found.dtype}, from which that of the engine cannot be made"


def _has_its_parts(matrix: SavedMatrix, path: str, shape: tuple[int, ...], head_dim: int) -> bool:
    """Whether the parts of its rows, if these lie apart, are those that the leaf has. shape: of its values."""
    return not matrix.part_shapes or (has_parts(path) and matrix.part_shapes == part_shapes(shape, head_dim))


def _read(file: OrbaxFile, part: Part, own: Arrays, stacked: Set[str]) -> Arrays:
    """The leaves of a part by their names in it; packed matrices whose inputs are in a possible order."""
    infos, packed = file.arrays_of(part.name), file.packed_of(part.name)
    structs: Arrays = {}
    for name, path in part.leaves.items():
        first, like = next(iter(by_path({path: own[path]}).items()))
        for array in packed[name].arrays if name in packed else (name,):
            shape, dtype = infos[array].shape, DTYPES[infos[array].dtype]
            of_rows = shape if len(shape) > 1 else ()  # vectors are whole on each device
            sharding = divisible(of_rows, _sharding(like), is_stacked=first in stacked)
            structs[array] = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    read, where = load_part(file.root, part.name, structs), str(file.root / part.name)
    return {name: packed[name].checked(where, read) if name in packed else read[name] for name in part.leaves}


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


def _zeros(structs: Mapping[str, jax.ShapeDtypeStruct]) -> Arrays:
    def make() -> Arrays:
        return {path: jnp.zeros(struct.shape, struct.dtype) for path, struct in structs.items()}

    return cast(Arrays, jax.jit(make, out_shardings={path: _sharding(s) for path, s in structs.items()})())


def _sharding(struct: jax.ShapeDtypeStruct) -> Sharding:
    return struct.sharding or jnp.zeros(()).sharding
