"""Device: n-gram drafts (prompt lookup, Saxena, 2023): what followed the last tokens where they occurred before."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32

from jaxserve.core.options.speculative_config import SpeculativeConfig


@dataclass(frozen=True, slots=True)
class NgramProposer:
    """min_len, max_len: tokens that must recur. A longer match is better, among equals the most recent one."""

    min_len: int
    max_len: int

    @classmethod
    def of(cls, config: SpeculativeConfig) -> "NgramProposer":
        return cls(config.prompt_lookup_min, config.prompt_lookup_max)

    @jax.named_scope("propose")
    def propose(
        self, history: Int32[Array, "S H"], lens: Int32[Array, "S"], num_drafts: int
    ) -> tuple[Int32[Array, "S N"], Int32[Array, "S"]]:
        """(drafts, how many of them are proposed: all or none) of rows whose tokens are history[s, : lens[s]].

        Where the match is so recent that the text ends before N tokens, the text between the two is repeated: with
        period p, the drafts are the last p tokens again and again.
        """
        num_rows, width = history.shape
        place = jnp.arange(width, dtype=jnp.int32)
        last = lens - 1  # the match ends at an earlier token than this one
        is_earlier = place[None] < last[:, None]
        run, is_match = jnp.zeros((num_rows, width), jnp.int32), is_earlier
        for i in range(self.max_len):
            wanted = jnp.take_along_axis(history, jnp.maximum(last - i, 0)[:, None], axis=1)
            shifted = jnp.pad(history, ((0, 0), (i, 0)))[:, :width]
            is_match &= (shifted == wanted) & (place >= i)[None]
            run += is_match.astype(jnp.int32)
        end = lax.argmax(run * width + place[None], 1, jnp.int32)
        found = jnp.take_along_axis(run, end[:, None], axis=1)[:, 0] >= self.min_len
        period = jnp.maximum(last - end, 1)
        steps = jnp.arange(num_drafts, dtype=jnp.int32)[None] % period[:, None]
        drafts = jnp.take_along_axis(history, jnp.minimum(end[:, None] + 1 + steps, width - 1), axis=1)
        return drafts, jnp.where(found, num_drafts, 0)
