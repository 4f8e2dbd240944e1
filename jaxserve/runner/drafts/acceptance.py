"""Device: which drafts a target model has confirmed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.runner.drafts.draft_tree import Drafts, ancestors


class Accepted(NamedTuple):
    """num_tokens: what each row advances by: its accepted drafts, and the token drawn after them. last: that token.

    is_bad: its logits were not finite. is_stop: it ends the row. nodes: the row's own token and its accepted drafts,
    the first `num_tokens` entries; None for chains, whose nodes are 0, 1, 2, ...
    """

    num_tokens: Int32[Array, "S"]
    last: Int32[Array, "S"]
    is_bad: Bool[Array, "S"]
    is_stop: Bool[Array, "S"]
    nodes: Int32[Array, "S W"] | None


@jax.named_scope("accept")
def sample_and_match(
    drawn: Int32[Array, "S W"], is_bad: Bool[Array, "S W"], is_stop: Bool[Array, "S W"], drafts: Drafts
) -> Accepted:
    """Accept drafts as far as they are the tokens that the target draws at their positions.

    drawn[s, j]: the target's token after node j, from the random numbers of its position. All tokens are the target's
    own, so the text is that of plain decoding, whatever is proposed. A row does not pass its end.
    """
    followed = drafts.followed
    is_proposed = jnp.arange(drafts.tokens.shape[1], dtype=jnp.int32)[None] < drafts.num[:, None]
    goes_on = jnp.take_along_axis(~is_bad & ~is_stop, followed, axis=1)
    is_match = is_proposed & goes_on & (jnp.take_along_axis(drawn, followed, axis=1) == drafts.tokens)
    if drafts.parents is not None:
        is_match &= ~_has_earlier_twin(drafts)
    is_before = ancestors(drafts)[:, 1:, 1:]
    is_accepted = jnp.all(is_match[:, None] | ~is_before, axis=2)
    num_accepted = jnp.sum(is_accepted, axis=1, dtype=jnp.int32)
    nodes, last = None, num_accepted
    if drafts.parents is not None:  # by number, which is by depth on one path
        is_rest = jnp.pad(~is_accepted, ((0, 0), (1, 0)))
        nodes = jnp.argsort(is_rest, axis=1, stable=True).astype(jnp.int32)
        last = jnp.take_along_axis(nodes, num_accepted[:, None], axis=1)[:, 0]

    def at_end(columns: jax.Array) -> jax.Array:
        return jnp.take_along_axis(columns, last[:, None], axis=1)[:, 0]

    return Accepted(1 + num_accepted, at_end(drawn), at_end(is_bad), at_end(is_stop), nodes)


def _has_earlier_twin(drafts: Drafts) -> Bool[Array, "S N"]:
    """Whether an earlier draft has the same token after the same node: of such only the first is accepted."""

    def is_same(column: jax.Array) -> jax.Array:
        return column[:, :, None] == column[:, None]

    is_twin = is_same(drafts.tokens) & is_same(drafts.followed)
    return jnp.any(is_twin & jnp.tri(drafts.tokens.shape[1], k=-1, dtype=jnp.bool_)[None], axis=2)
