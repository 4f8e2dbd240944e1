"""Device: converts leaves between their saved form, which is the same for every mesh, and the form a mesh needs.

Saved embeddings have no padding rows and saved KV heads are not repeated. Which of four cases applies follows from the
shapes alone: rows of a vocabulary; rows of queries, keys and values in one leaf; queries alone; keys or values alone.
Values are only moved, so `narrow` inverts `widen` bit for bit.
"""

import math

import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jaxtyping import Array, Shaped


def widen(saved: Shaped[Array, "..."], shape: tuple[int, ...], head_dim: int) -> Shaped[Array, "..."]:
    """A saved leaf `[rows, ...]` or `[K, (G+2)·H, ...]` in the shape that the mesh needs: with rows of zeros appended,
    or with KV heads repeated, one for each query group. Of rows that lie apart, queries are `[K, G·H, n]`, keys and
    values `[K, H, n]`.
    """
    if saved.shape == shape:
        return saved
    if _are_queries(saved.shape, shape):
        return saved.reshape(shape)
    if _are_shared(saved.shape, shape):
        return jnp.repeat(saved, shape[0] // saved.shape[0], axis=0)
    if saved.shape[1:] == shape[1:]:
        return jnp.pad(saved, [(0, shape[0] - saved.shape[0])] + [(0, 0)] * (saved.ndim - 1))
    repeat, rest = shape[0] // saved.shape[0], saved.shape[2:]
    queries = saved[:, : -2 * head_dim].reshape(shape[0], -1, *rest)
    shared = jnp.repeat(saved[:, -2 * head_dim :], repeat, axis=0)
    return jnp.concatenate([queries, shared], axis=1)


def narrow(leaf: Shaped[Array, "..."], shape: tuple[int, ...], head_dim: int) -> Shaped[Array, "..."]:
    """The inverse of `widen`."""
    if leaf.shape == shape:
        return leaf
    if _are_queries(leaf.shape, shape):
        return leaf.reshape(shape)
    if _are_shared(leaf.shape, shape):
        return leaf[:: leaf.shape[0] // shape[0]]
    if leaf.shape[1:] == shape[1:]:
        return leaf[: shape[0]]
    repeat, rest = leaf.shape[0] // shape[0], leaf.shape[2:]
    queries = leaf[:, : -2 * head_dim].reshape(shape[0], -1, *rest)
    return jnp.concatenate([queries, leaf[::repeat, -2 * head_dim :]], axis=1)


def _are_queries(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether leaves of these shapes are rows of queries alone: as many in all, of other groups."""
    return len(one) == 3 and one[0] * one[1] == other[0] * other[1]


def _are_shared(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether they are rows of keys or of values alone; embeddings, which have other rows, have two axes."""
    return len(one) == 3 and one[1:] == other[1:]


def divisible(shape: tuple[int, ...], like: Sharding, *, is_stacked: bool) -> Sharding:
    """The sharding of a saved leaf of `shape` whose leaf in the tree has the sharding `like`: along the same axis where
    its size is divisible, else along another axis, else replicated. is_stacked: `like` has a layer axis in front.
    """
    if not isinstance(like, NamedSharding):
        return like
    spec = [*like.spec, *[None] * len(shape)][is_stacked : len(shape) + is_stacked]
    divided: list[str | tuple[str, ...] | None] = [None] * len(shape)
    for axis, names in enumerate(spec):
        if names is None:
            continue
        size = math.prod(like.mesh.shape[name] for name in ((names,) if isinstance(names, str) else names))
        others = sorted(range(len(shape)), key=lambda i: (i != axis, -shape[i]))
        free = [i for i in others if divided[i] is None and shape[i] % size == 0 and (i == axis or spec[i] is None)]
        if free:
            divided[free[0]] = names
    return NamedSharding(like.mesh, PartitionSpec(*divided))
