"""Device: n-gram drafts (prompt lookup, Saxena, 2023): what followed the last tokens where they occurred before.

text  a b c d … a b e f … a b        chain      b ─ e ─ f ─ …
                                     2 branches b ─┬─ e ─ f ─ …    where they went on in different ways: a tree
                                                   └─ c ─ d ─ …
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer


@dataclass(frozen=True, slots=True)
class NgramProposer(Proposer):
    """min_len, max_len: tokens that must recur. A longer match is better, among equals the most recent one.

    num_branches: matches that are followed, each with a first draft of its own.
    """

    min_len: int
    max_len: int
    num_branches: int = 1

    @classmethod
    def of(cls, config: SpeculativeConfig) -> "NgramProposer":
        return cls(config.prompt_lookup_min, config.prompt_lookup_max, config.prompt_lookup_branches)

    @property
    def makes_trees(self) -> bool:
        """Whether drafts have parents."""
        return self.num_branches > 1

    @property
    def drafts_late(self) -> bool:
        """See `Proposer`."""
        return True

    def depth(self, num_drafts: int) -> int:
        """See `Proposer`: the branches share the drafts."""
        return -(-num_drafts // self.num_branches)

    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        assert state.history is not None
        return state, self.look_up(state.history[rows.slots], rows.starts + 1, num_drafts)

    @jax.named_scope("propose")
    def look_up(self, history: Int32[Array, "S H"], lens: Int32[Array, "S"], num_drafts: int) -> Drafts:
        """Drafts of rows whose tokens are history[s, : lens[s]].

        Where a match is so recent that the text ends before its branch does, the text between the two is repeated: with
        period p, the drafts are the last p tokens again and again. The best match has the first and longest branch.
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
        score = jnp.where(run >= self.min_len, run * width + place[None], -1)
        following = jnp.roll(history, -1, axis=1)
        branches, num = list[jax.Array](), jnp.zeros(num_rows, jnp.int32)
        num_branches = min(self.num_branches, num_drafts)
        lengths = [len(part) for part in np.array_split(range(num_drafts), num_branches)]
        for length in lengths:
            end = lax.argmax(score, 1, jnp.int32)[:, None]
            is_found = jnp.take_along_axis(score, end, axis=1)[:, 0] >= 0
            period = jnp.maximum(last[:, None] - end, 1)
            steps = jnp.arange(length, dtype=jnp.int32)[None] % period
            branches.append(jnp.take_along_axis(history, jnp.minimum(end + 1 + steps, width - 1), axis=1))
            num += jnp.where(is_found, length, 0)
            score = jnp.where(following == branches[-1][:, :1], -1, score)
        ends = zip(lengths, np.cumsum(lengths), strict=True)
        parents = np.concatenate([[0, *range(end - length + 1, end)] for length, end in ends])
        tokens = jnp.concatenate(branches, axis=1)
        return Drafts(tokens, num, jnp.broadcast_to(jnp.int32(parents), tokens.shape) if self.makes_trees else None)
