"""Device: suffix drafts: a tree of what followed the last tokens before (SuffixDecoding, Oliaro et al., arXiv
2411.04975), in the row's own text and in earlier outputs of the same owner.

    last tokens … a b       found   … a b c d …   … a b c e …   … b f …
                            after "a b": c 1, c d 1/2, c e 1/2        after "b": c 2/3, f 1/3, c d 1/3, c e 1/3

A draft's share is how often its path followed, among all places at which as many tokens recur. The likeliest N drafts
are proposed: the sum of their shares is how many would be accepted if shares were probabilities, and of the numbers of
tokens that recur the one with the largest sum is chosen. Suffix trees are what a host would find the places in; a
device compares all tokens at once.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.drafts.proposer import DraftRows, Proposer
from jaxserve.sampling.argmax_top_k import top_k

LENGTHS = (16, 8, 4, 2, 1)
"""Tokens that recur, of which the best number is chosen; equals go to the longest."""
NUM_PLACES = 16
"""The places that count: those at which most tokens recur, of equals the latest."""


@dataclass(frozen=True, slots=True)
class SuffixProposer(Proposer):
    """max_factor: the most drafts, one after the other, by the number of tokens that recur. min_share: of a draft."""

    max_factor: float
    min_share: float

    @property
    def makes_trees(self) -> bool:
        """See `Proposer`."""
        return True

    @property
    def drafts_late(self) -> bool:
        """See `Proposer`."""
        return True

    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        assert state.history is not None
        earlier = jnp.zeros((2, 0), jnp.int32) if state.earlier is None else state.earlier
        drafts = self.look_up(state.history[rows.slots], rows.starts + 1, earlier, rows.owners, num_drafts)
        return state, drafts

    @jax.named_scope("propose")
    def look_up(
        self,
        history: Int32[Array, "S H"],
        lens: Int32[Array, "S"],
        earlier: Int32[Array, "2 E"],
        owners: Int32[Array, "S"],
        num_drafts: int,
    ) -> Drafts:
        """Drafts of rows whose tokens are history[s, : lens[s]]; earlier: tokens and owners (`EarlierOutputs`)."""
        runs, following = find_places(history, lens, earlier, owners, num_drafts)
        return self.tree(runs, following)

    def tree(self, runs: Int32[Array, "S M"], following: Int32[Array, "S M N"]) -> Drafts:
        """The likeliest of what followed at M places with so many tokens that recur, the most first; -1: nothing."""
        num_rows, num_places, num_drafts = following.shape
        num_nodes = num_places * num_drafts
        is_same = _have_same_path(following)  # [S, M, M, N]
        first = lax.argmax(is_same, 2, jnp.int32)  # the place that stands for all with this path
        place, depth = (jnp.arange(n, dtype=jnp.int32) for n in (num_places, num_drafts))
        lengths = jnp.int32(LENGTHS)
        counts = runs[:, None] >= lengths[None, :, None]  # [S, L, M], the first places of all
        num_same = jnp.sum(is_same[:, None] & counts[:, :, None, :, None], axis=3, dtype=jnp.int32)  # [S, L, M, N]
        share = num_same / jnp.maximum(jnp.sum(counts, axis=2, dtype=jnp.int32), 1)[:, :, None, None]
        max_depth = jnp.floor(lengths.astype(jnp.float32) * self.max_factor).astype(jnp.int32)
        is_first = (first == place[None, :, None]) & is_same.any(2)
        is_shallow = (depth[None] < max_depth[:, None])[None, :, None]
        is_node = is_first[:, None] & counts[..., None] & is_shallow & (share >= self.min_share)
        # A path has no more followers than its start, which comes first among equals: parents precede children.
        among_equals = (num_drafts - 1 - depth)[None] * num_places + (num_places - 1 - place)[:, None]
        order = num_same * num_nodes + among_equals[None, None]
        order = jnp.where(is_node, order, -1).astype(jnp.float32).reshape(num_rows, len(LENGTHS), num_nodes)
        found, nodes = top_k(order.reshape(-1, num_nodes), num_drafts)
        found, nodes = (a.reshape(num_rows, len(LENGTHS), num_drafts) for a in (found, nodes))
        taken = jnp.take_along_axis(share.reshape(order.shape), nodes, axis=2)
        best = lax.argmax(jnp.sum(jnp.where(found >= 0, taken, 0), axis=2), 1, jnp.int32)[:, None, None]
        found, nodes = (jnp.take_along_axis(a, best, axis=1)[:, 0] for a in (found, nodes))
        before = jnp.maximum(nodes - 1, 0)  # of the same place
        parent = jnp.take_along_axis(first.reshape(num_rows, -1), before, axis=1) * num_drafts + before % num_drafts
        parents = 1 + lax.argmax(nodes[:, None] == parent[:, :, None], 2, jnp.int32)
        return Drafts(
            jnp.maximum(jnp.take_along_axis(following.reshape(num_rows, -1), nodes, axis=1), 0),
            jnp.sum(found >= 0, axis=1, dtype=jnp.int32),
            jnp.where(nodes % num_drafts == 0, 0, parents),
        )


def find_places(
    history: Int32[Array, "S H"],
    lens: Int32[Array, "S"],
    earlier: Int32[Array, "2 E"],
    owners: Int32[Array, "S"],
    num_drafts: int,
) -> tuple[Int32[Array, "S M"], Int32[Array, "S M N"]]:
    """At M places how many of each row's last tokens recur, the most first, and the tokens that followed; -1: none.

    What follows a recent place of the row's own text is repeated as `NgramProposer` does.
    """
    num_rows, width = history.shape
    tokens, own = earlier[0], jnp.arange(width, dtype=jnp.int32)
    last = lens - 1
    is_found = [own[None] < last[:, None], earlier[1][None] == owners[:, None]]
    runs = [jnp.zeros((num_rows, a.shape[1]), jnp.int32) for a in is_found]
    for i in range(LENGTHS[0]):
        wanted = jnp.take_along_axis(history, jnp.maximum(last - i, 0)[:, None], axis=1)
        wanted = jnp.where(last[:, None] >= i, wanted, -2)  # equal to no token
        shifted = jnp.pad(history, ((0, 0), (i, 0)), constant_values=-1)[:, :width], jnp.roll(tokens, i)[None]
        is_found = [mask & (a == wanted) for mask, a in zip(is_found, shifted, strict=True)]
        runs = [run + mask.astype(jnp.int32) for run, mask in zip(runs, is_found, strict=True)]
    num_earlier = len(tokens)
    run = jnp.concatenate(runs[::-1], axis=1)  # earlier outputs first: of equals the row's own text is later
    total = run.shape[1]
    score = (run * total + jnp.arange(total, dtype=jnp.int32)[None]).astype(jnp.float32)
    _, places = top_k(score, min(NUM_PLACES, total))
    run = jnp.take_along_axis(run, places, axis=1)
    step = jnp.arange(num_drafts, dtype=jnp.int32)[None, None]
    end = places[:, :, None]
    period = jnp.maximum(last[:, None, None] - (end - num_earlier), 1)
    after = jnp.clip(end - num_earlier + 1 + step % period, 0, width - 1)
    following = jnp.take_along_axis(history, after.reshape(num_rows, -1), axis=1).reshape(after.shape)
    if num_earlier:
        following = jnp.where(end < num_earlier, tokens[(end + 1 + step) % num_earlier], following)
    is_text = _so_far(following >= 0)
    return run, jnp.where(is_text & (run > 0)[..., None], following, -1)


def _have_same_path(following: Int32[Array, "S M N"]) -> Bool[Array, "S M M N"]:
    """Whether the texts at two places are the same up to each depth."""
    return _so_far((following[:, :, None] == following[:, None]) & (following >= 0)[:, :, None])


def _so_far(holds: jax.Array) -> jax.Array:
    """Whether it holds here and at all smaller depths, the last axis."""
    return jnp.cumprod(holds, axis=-1, dtype=jnp.int32) > 0
