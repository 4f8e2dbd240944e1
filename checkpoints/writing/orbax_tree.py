"""Device: saves and restores parameter trees as a folder of Orbax parts, on any mesh.

`saved` gives the shape of every leaf in its saved form: vocabulary unpadded, KV heads not repeated, layers stacked.
Parts are handled one by one, so in addition to the tree only one layer exists at any time. An *own* leaf of a part is
what the tree has for it: a whole leaf, or the part's layer where the leaf is a tuple.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.orbax_folder import INDEX, OrbaxFile, load_part, save_part, write_index
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.canonical import divisible, narrow, widen
from checkpoints.mapping.parts import Part, SavedTree, parts_of
from checkpoints.mapping.rules import ModelDims, Shapes
from checkpoints.mapping.trees import by_path, is_tuple, leaf_dtype, with_leaves

Arrays = dict[str, Any]


def save(root: Path, tree: Any, saved: Shapes, dims: ModelDims) -> None:
    """Saves a tree of arrays; on several hosts each writes the shards of its devices."""
    leaves = by_path(tree)
    parts = parts_of(leaves, dims.layer_slots)
    if jax.process_index() == 0:
        root.mkdir(parents=True, exist_ok=True)
        (root / INDEX).unlink(missing_ok=True)
    takers: dict[Any, Any] = {}
    for part in parts:
        own = {name: _own(leaves[path], part) for name, path in part.leaves.items()}
        stacked = {name for name, path in part.leaves.items() if _is_stack(leaves[path], part)}
        shapes = {name: part.shape(saved[path]) for name, path in part.leaves.items()}
        take = takers.setdefault(tuple(part.leaves.values()), _taker(own, stacked, shapes, dims.head_dim))
        save_part(root, part.name, take(own, _layer_index(part)))
    if jax.process_index() == 0:
        dtypes = {path: np.dtype(leaf_dtype(leaf)) for path, leaf in leaves.items()}
        write_index(root, SavedTree(dict(saved), dtypes, dims.layer_slots).index)


def restore(file: OrbaxFile, target: Any, saved: Shapes, dims: ModelDims, *, progress: Progress | None = None) -> Any:
    """The tree `target` of `jax.ShapeDtypeStruct`s: every device reads its own shard of each part.

    Each leaf gets the dtype and sharding of its struct (no sharding: the default device). `progress(done, total)` is
    called after each part, in bytes. Raises `CheckpointError` before reading if leaves or shapes do not fit.
    """
    structs = by_path(target)
    parts = parts_of(structs, dims.layer_slots)
    _check(file, parts, saved)
    stacked = {path for part in parts for path in part.leaves.values() if _is_stack(structs[path], part)}
    leaves: Arrays = _zeros({path: structs[path] for path in structs if path in stacked})
    total, done = sum(info.nbytes for info in file.tensors.values()), 0
    fillers: dict[Any, Any] = {}
    for part in parts:
        infos = file.leaves_of(part.name)
        own = {path: _own(structs[path], part) for path in part.leaves.values()}
        stored = {
            name: _struct(infos[name].shape, infos[name].dtype, own[path], is_stacked=path in stacked)
            for name, path in part.leaves.items()
        }
        read = load_part(file.root, part.name, stored)
        fill = fillers.setdefault(tuple(own), _filler(own, dims.head_dim))
        stacks = {path: leaves[path] for path in own if path in stacked}
        filled = fill(stacks, {path: read[name] for name, path in part.leaves.items()}, _layer_index(part))
        jax.block_until_ready(filled)
        for path, leaf in filled.items():
            leaves[path] = (*leaves.get(path, ()), leaf) if is_tuple(structs[path]) else leaf
        done += sum(info.nbytes for info in infos.values())
        if progress is not None:
            progress(done, total)
    return with_leaves(target, [leaves[path] for path in structs])


def _own(leaf: Any, part: Part) -> Any:
    return leaf if part.index is None or not is_tuple(leaf) else leaf[part.index]


def _is_stack(leaf: Any, part: Part) -> bool:
    """Whether a part is one layer of a leaf that is one array for all layers."""
    return part.index is not None and not is_tuple(leaf)


def _check(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes) -> None:
    problems = list(_misfits(file, parts, saved))
    if problems:
        raise CheckpointError(f"{file.root}: {len(problems)} leaves do not fit the model{listed(problems)}")


def _misfits(file: OrbaxFile, parts: tuple[Part, ...], saved: Shapes) -> Iterator[str]:
    expected = {f"{part.name}/{name}": part.shape(saved[path]) for part in parts for name, path in part.leaves.items()}
    for name in sorted(expected.keys() | file.tensors.keys()):
        if name not in expected:
            yield f"unexpected: {name}"
        elif name not in file.tensors:
            yield f"missing: {name}"
        elif file.tensors[name].shape != expected[name]:
            yield f"shape: {name} is {list(file.tensors[name].shape)}, the model needs {list(expected[name])}"


def _sharding(struct: jax.ShapeDtypeStruct) -> Sharding:
    return struct.sharding or jnp.zeros(()).sharding


def _zeros(structs: Mapping[str, jax.ShapeDtypeStruct]) -> Arrays:
    def make() -> Arrays:
        return {path: jnp.zeros(struct.shape, struct.dtype) for path, struct in structs.items()}

    return cast(Arrays, jax.jit(make, out_shardings={path: _sharding(s) for path, s in structs.items()})())


def _struct(
    shape: tuple[int, ...], dtype: str, leaf: jax.ShapeDtypeStruct, *, is_stacked: bool
) -> jax.ShapeDtypeStruct:
    sharding = divisible(shape, _sharding(leaf), is_stacked=is_stacked)
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)


def _layer_index(part: Part) -> np.int32 | None:
    return None if part.index is None else np.int32(part.index)


def _filler(structs: Mapping[str, jax.ShapeDtypeStruct], head_dim: int) -> Callable[..., Arrays]:
    """(stacks, arrays of a part, index) → the own leaves: the donated stacks with that layer written in place."""

    def fill(stacks: Arrays, read: Arrays, index: jax.Array | None) -> Arrays:
        own: Arrays = {}
        for path, struct in structs.items():
            shape = struct.shape[1:] if path in stacks else struct.shape
            own[path] = widen(read[path], shape, head_dim).astype(struct.dtype)
        updated = {path: jax.lax.dynamic_update_index_in_dim(s, own[path], index, 0) for path, s in stacks.items()}
        return own | updated

    out_shardings = {path: _sharding(struct) for path, struct in structs.items()}
    return jax.jit(fill, donate_argnums=0, out_shardings=out_shardings)


def _taker(own: Arrays, stacked: Set[str], shapes: Shapes, head_dim: int) -> Callable[..., Arrays]:
    """(own leaves, index) → one part's arrays in their saved shapes. stacked: names of leaves for all layers."""

    def take(own: Arrays, index: jax.Array | None) -> Arrays:
        layers: Arrays = {
            name: jax.lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False) if name in stacked else leaf
            for name, leaf in own.items()
        }
        return {name: narrow(leaf, shapes[name], head_dim) for name, leaf in layers.items()}

    out = {name: divisible(shapes[name], leaf.sharding, is_stacked=name in stacked) for name, leaf in own.items()}
    return jax.jit(take, out_shardings=out)
