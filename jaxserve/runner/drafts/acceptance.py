"""Device: which drafts a target model has confirmed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32


class Accepted(NamedTuple):
    """num_tokens: what each row advances by: its accepted drafts, and the token drawn after them. last: that token.

    is_bad: its logits were not finite. is_stop: it ends the row.
    """

    num_tokens: Int32[Array, "S"]
    last: Int32[Array, "S"]
    is_bad: Bool[Array, "S"]
    is_stop: Bool[Array, "S"]


@jax.named_scope("accept")
def sample_and_match(
    drawn: Int32[Array, "S W"],
    is_bad: Bool[Array, "S W"],
    is_stop: Bool[Array, "S W"],
    drafts: Int32[Array, "S N"],
    num_drafts: Int32[Array, "S"],
) -> Accepted:
    """Accept drafts as far as they are the tokens that the target draws at their positions (W = N + 1).

    drawn[s, j]: the target's token after draft j - 1, from the random numbers of its position. All tokens are the
    target's own, so the text is that of plain decoding, whatever is proposed. A row does not pass its end.
    """
    is_proposed = jnp.arange(drafts.shape[1], dtype=jnp.int32)[None] < num_drafts[:, None]
    goes_on = is_proposed & (drawn[:, :-1] == drafts) & ~is_bad[:, :-1] & ~is_stop[:, :-1]
    num_accepted = jnp.sum(jnp.cumprod(goes_on.astype(jnp.int32), axis=1), axis=1, dtype=jnp.int32)

    def at_end(columns: jax.Array) -> jax.Array:
        return jnp.take_along_axis(columns, num_accepted[:, None], axis=1)[:, 0]

    return Accepted(1 + num_accepted, at_end(drawn), at_end(is_bad), at_end(is_stop))
