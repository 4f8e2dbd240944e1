"""Device: rounds of a verify bucket: each row drafts tokens, and one forward pass confirms some of them.

    round:  last token | drafts          W = 1 + max_drafts nodes of a row, packed row after row
            drawn after each of them     accepted: as far as the drafts are what is drawn; the row advances by these

The loop ends after a round in which no row has drafts. A row ends as in `decode_loop.py`. Rejected drafts leave keys
and values behind the row's length, which the next round overwrites. Those of a tree's accepted path are moved there.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.acceptance import Accepted, sample_and_match
from jaxserve.runner.drafts.draft_tree import Drafts, ancestors, tree_bits
from jaxserve.runner.drafts.packed_rows import pack_rows
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import StepInputs, first_inputs
from jaxserve.runner.step.row_ends import has_ended_before, is_stop
from jaxserve.runner.step.step_output import LateNodes, packed_size


class DrawnNodes(NamedTuple):
    """The target's token after each node. logprobs: packed. slots: where the nodes' KV lies, in each KV group; None:
    drafts are no trees. hidden: the states that the tokens were drawn from. features: of the nodes, if the proposer has
    such."""

    tokens: Int32[Array, "S W"]
    is_bad: Bool[Array, "S W"]
    logprobs: Int32[Array, "S W fields"]
    slots: Int32[Array, "G S W"] | None
    hidden: Float[Array, "S W D"]
    features: Float[Array, "S W F"] | None

    def along(self, accepted: Accepted) -> tuple[Int32[Array, "S W"], Int32[Array, "S W fields"]]:
        """Tokens and log-probabilities by position: of the accepted nodes, and any behind them."""
        if accepted.nodes is None:
            return self.tokens, self.logprobs
        nodes = accepted.nodes
        return (
            jnp.take_along_axis(self.tokens, nodes, axis=1),
            jnp.take_along_axis(self.logprobs, nodes[:, :, None], axis=1),
        )


class VerifyResults(NamedTuple):
    """The results of all rounds, R = bucket.max_rounds; `num_rounds` of them ran, the others hold zeros.

    num_tokens: tokens by which each row advanced, the first of its `tokens` of the round. num_drafts: proposed ones.
    is_bad: the last of these tokens had logits that were not finite.
    """

    num_rounds: Int32[Array, ""]
    num_tokens: Int32[Array, "R S"]
    num_drafts: Int32[Array, "R S"]
    is_bad: Bool[Array, "R S"]
    tokens: Int32[Array, "R S W"]
    logprobs: Int32[Array, "R O"]


# (state, starts, last tokens, most drafts of each row) -> (state, drafts)
Propose = Callable[[DeviceState, jax.Array, jax.Array, jax.Array], tuple[DeviceState, Drafts]]
# (state, inputs, drafts, unfinished rows) -> (state, drawn tokens): one forward pass, which leaves lengths as they are.
Verify = Callable[[DeviceState, StepInputs, Drafts, jax.Array], tuple[DeviceState, DrawnNodes]]
# (state, starts, tokens by position [S, W], rows that go on, what was accepted, what was drawn) -> state after it
Advance = Callable[[DeviceState, jax.Array, jax.Array, jax.Array, Accepted, DrawnNodes], DeviceState]


class Carry(NamedTuple):
    state: DeviceState
    starts: Int32[Array, "S"]
    last_tokens: Int32[Array, "S"]
    is_active: Bool[Array, "S"]
    num_done: Int32[Array, "S"]
    results: VerifyResults
    late: LateNodes | None


def run_verify_rounds(
    propose: Propose,
    verify: Verify,
    advance: Advance,
    layout: BatchLayout,
    buffer: Int32[Array, "B"],
    state: DeviceState,
    max_logprobs: int,
    late: LateNodes | None,
) -> tuple[DeviceState, VerifyResults, LateNodes | None]:
    """Run the rounds of a verify bucket; the state is carried through the loop, so it is updated in place.

    late: zeros, if late rows may have drafts: these rows advance by their own token, and the nodes of the last round
    are returned.
    """
    parts, bucket = layout.split(buffer), layout.bucket
    rows, max_rounds = parts["rows"], parts["header"][2]
    max_tokens, max_drafts = rows[:, ROW_INDEX["max_tokens"]], rows[:, ROW_INDEX["max_drafts"]]
    num_rows, width = bucket.num_rows, 1 + bucket.max_drafts
    starts, query_lens, first, _ = first_inputs(layout, buffer, state)
    is_active = (max_tokens > 0) & (query_lens > 0) & ~has_ended_before(rows, first, starts)

    def run_round(carry: Carry) -> Carry:
        state, starts, last_tokens, is_active, num_done, results, late = carry
        room = jnp.clip(jnp.minimum(max_drafts, max_tokens - num_done - 1), 0, bucket.max_drafts)
        state, drafts = propose(state, starts, last_tokens, jnp.where(is_active, room, 0))
        tokens = jnp.concatenate([last_tokens[:, None], drafts.tokens], axis=1)
        lens = jnp.where(query_lens > 0, 1 + drafts.num, 0)
        is_ancestor = ancestors(drafts)
        bits = None if drafts.parents is None else tree_bits(is_ancestor)
        inputs = StepInputs(starts, lens, pack_rows(tokens, lens), bits)
        state, drawn = verify(state, inputs, drafts, is_active)
        position = starts[:, None] + jnp.sum(is_ancestor, axis=2, dtype=jnp.int32)
        checked = drafts
        if late is not None:
            late = LateNodes(drawn.hidden, drafts.tokens, jnp.where(is_active, drafts.num, 0))
            checked = drafts._replace(num=jnp.where(rows[:, ROW_INDEX["samples"]] > 0, drafts.num, 0))
        accepted = sample_and_match(drawn.tokens, drawn.is_bad, is_stop(rows, drawn.tokens, position), checked)
        found_tokens, found_logprobs = drawn.along(accepted)
        state = advance(state, starts, found_tokens, is_active, accepted, drawn)
        num_new = jnp.where(is_active, accepted.num_tokens, 0)
        num_done += num_new
        found = VerifyResults(
            num_rounds=results.num_rounds,
            num_tokens=num_new,
            num_drafts=jnp.where(is_active, drafts.num, 0),
            is_bad=accepted.is_bad & is_active,
            tokens=found_tokens,
            logprobs=found_logprobs.reshape(-1),
        )
        tables: list[jax.Array] = [
            lax.dynamic_update_index_in_dim(table, of_round, results.num_rounds, 0)
            for table, of_round in zip(results[1:], found[1:], strict=True)
        ]
        is_active &= ~(accepted.is_bad | accepted.is_stop | (num_done >= max_tokens))
        starts = jnp.where(is_active, starts + num_new, starts)
        last_tokens = jnp.where(is_active, accepted.last, last_tokens)
        results = VerifyResults(results.num_rounds + 1, *tables)
        return Carry(state, starts, last_tokens, is_active, num_done, results, late)

    def is_unfinished(carry: Carry) -> jax.Array:
        # Without drafts decode buckets are faster: the host plans one after a round without any.
        num_rounds, num_drafts = carry.results.num_rounds, carry.results.num_drafts
        has_drafts = (num_rounds == 0) | jnp.any(num_drafts[jnp.maximum(num_rounds - 1, 0)] > 0)
        return jnp.any(carry.is_active) & (num_rounds < max_rounds) & has_drafts

    def empty(*shape: int, dtype: type = jnp.int32) -> jax.Array:
        return jnp.zeros((bucket.max_rounds, *shape), dtype)

    results = VerifyResults(
        num_rounds=jnp.int32(0),
        num_tokens=empty(num_rows),
        num_drafts=empty(num_rows),
        is_bad=empty(num_rows, dtype=jnp.bool_),
        tokens=empty(num_rows, width),
        logprobs=empty(packed_size(bucket.num_heads, max_logprobs)),
    )
    carry = Carry(state, starts, first, is_active, jnp.zeros_like(starts), results, late)
    # As in `decode_loop`: no loop where it has one turn.
    last = run_round(carry) if bucket.max_rounds == 1 else lax.while_loop(is_unfinished, run_round, carry)
    return last.state, last.results, last.late
