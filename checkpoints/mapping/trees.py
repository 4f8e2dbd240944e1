"""Device: parameter trees as flat dicts of their leaves by path, and back."""

from collections.abc import Iterable
from typing import Any, cast

import jax


def by_path(tree: Any) -> dict[str, Any]:
    """Leaves by their paths ("layers/full/qkv"), in the tree's order."""
    flat = cast(list[tuple[Any, Any]], jax.tree_util.tree_flatten_with_path(tree)[0])
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}


def with_leaves(tree: Any, leaves: Iterable[Any]) -> Any:
    """A tree of the same structure with these leaves, in the tree's order."""
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)
