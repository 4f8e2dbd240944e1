"""Device: `by_path`: a parameter tree as a flat dict of its leaves by path."""

from typing import Any

import jax


def by_path(tree: Any) -> dict[str, Any]:
    """Leaves by their paths ("layers/full/qkv"), in the tree's order."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}
