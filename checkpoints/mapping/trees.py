"""Device: parameter trees as flat dicts of their leaves by path, and back.

A leaf is an array; or, in place of an array that is stacked over layers, a tuple of arrays, one for each layer. Arrays
may also be `jax.ShapeDtypeStruct`s. A packed matrix has a leaf for each of its fields, or is one leaf (`matrices`).
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeGuard, cast

import jax

from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor


def by_path(tree: Any) -> dict[str, Any]:
    """Leaves by their paths ("layers/full/qkv"), in the tree's order."""
    return _flat(tree, is_tuple)


def matrices(tree: Any) -> dict[str, Any]:
    """The same, where a packed matrix is one leaf, as it is in files."""
    return _flat(tree, _is_matrix)


def with_leaves(tree: Any, leaves: Iterable[Any]) -> Any:
    """A tree of the same structure with these leaves, in the order of `by_path`."""
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_tuple), leaves)


def with_matrices(tree: Any, leaves: Iterable[Any]) -> Any:
    """The same with leaves in the order of `matrices`."""
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=_is_matrix), leaves)


def _flat(tree: Any, is_leaf: Callable[[Any], bool]) -> dict[str, Any]:
    flat = cast(list[tuple[Any, Any]], jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0])
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def _is_matrix(leaf: Any) -> bool:
    return is_tuple(leaf) or isinstance(leaf, QTensor | BlockTensor | RowParts)


def is_tuple(leaf: Any) -> TypeGuard[tuple[Any, ...]]:
    """Whether a leaf is a tuple of arrays, not of the parts of `RowParts`."""
    return isinstance(leaf, tuple) and not any(isinstance(part, BlockTensor) for part in cast(tuple[Any, ...], leaf))


def stacked_shape(leaf: Any) -> tuple[int, ...]:
    """The shape of a leaf; of a tuple, that of its arrays stacked."""
    return (len(leaf), *leaf[0].shape) if is_tuple(leaf) else leaf.shape


def leaf_dtype(leaf: Any) -> Any:
    """The dtype of a leaf."""
    return (leaf[0] if is_tuple(leaf) else leaf).dtype
