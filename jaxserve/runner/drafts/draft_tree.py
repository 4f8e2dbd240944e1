"""Device: `Drafts`: the tokens proposed to a row, in a chain or a tree, and what each of its nodes follows.

    node 0: the row's own last token      parents  0 0 1 1 3      0 ─┬─ 1 ─┬─ 3
    node 1 + i: draft i                                              │     └─ 4 ─ 5
                                                                     └─ 2

A row's nodes are its tokens of a pass, in this order: node j has KV index start + j, and its position in the text is
start + its depth. A node attends to its ancestors and to itself (`AttentionMeta.tree`).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32


class Drafts(NamedTuple):
    """Of each row the first `num` of `tokens` are proposed (W = N + 1 nodes).

    parents: the node that each draft follows, with a lower number. None: chains, each follows the one before it. laws:
    the probabilities by which each draft was drawn; None: they are not known.
    """

    tokens: Int32[Array, "S N"]
    num: Int32[Array, "S"]
    parents: Int32[Array, "S N"] | None = None
    laws: Float[Array, "S N V"] | None = None

    @property
    def followed(self) -> Int32[Array, "S N"]:
        """`parents`, of chains too."""
        chain = jnp.arange(self.tokens.shape[1], dtype=jnp.int32)[None]
        return jnp.broadcast_to(chain, self.tokens.shape) if self.parents is None else self.parents


def ancestors(drafts: Drafts) -> Bool[Array, "S W W"]:
    """[s, i, j]: node j is node i or lies before it on its path; S is 1 for chains, which are all alike."""
    width = 1 + drafts.tokens.shape[1]
    if drafts.parents is None:
        return jnp.tri(width, dtype=jnp.bool_)[None]
    node = jnp.arange(width, dtype=jnp.int32)[None, None]
    parents = jnp.pad(drafts.parents, ((0, 0), (1, 0)))
    path = jnp.eye(width, dtype=jnp.bool_)[None] | (parents[:, :, None] == node)
    for _ in range((width - 2).bit_length()):  # each time as far again
        path = jnp.any(path[:, :, :, None] & path[:, None], axis=2)
    return path


def tree_bits(is_ancestor: Bool[Array, "S W W"]) -> Int32[Array, "S W words"]:
    """Each node's ancestors and itself as bits, 32 to a word."""
    num_rows, width, _ = is_ancestor.shape
    padded = jnp.pad(is_ancestor, ((0, 0), (0, 0), (0, -width % 32))).reshape(num_rows, width, -1, 32)
    bit = (jnp.int32(1) << jnp.arange(32, dtype=jnp.int32))[None, None, None]
    return jnp.sum(jnp.where(padded, bit, 0), axis=3, dtype=jnp.int32)


def with_chains(drafts: Drafts, is_chain: Bool[Array, "S"]) -> Drafts:
    """Of these rows, in place of a tree, the path that takes the first child of each node, which is the likeliest."""
    if drafts.parents is None:
        return drafts
    num_drafts = drafts.tokens.shape[1]
    draft = jnp.arange(num_drafts, dtype=jnp.int32)
    is_sibling = drafts.parents[:, :, None] == drafts.parents[:, None]
    is_first = ~jnp.any(is_sibling & (draft[:, None] > draft[None])[None], axis=2)
    is_on_path = jnp.all(is_first[:, None] | ~ancestors(drafts)[:, 1:, 1:], axis=2)
    is_on_path &= draft[None] < drafts.num[:, None]
    path = jnp.argsort(~is_on_path, axis=1, stable=True)  # by number, which is by depth
    tokens = jnp.take_along_axis(drafts.tokens, path, axis=1)
    return drafts._replace(
        tokens=jnp.where(is_chain[:, None], tokens, drafts.tokens),
        num=jnp.where(is_chain, jnp.sum(is_on_path, axis=1, dtype=jnp.int32), drafts.num),
        parents=jnp.where(is_chain[:, None], draft[None], drafts.parents),
    )
