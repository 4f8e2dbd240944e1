"""Device: multi-step decoding: a loop of decode rounds in one step, until every row of the batch has finished; without
a loop, if the bucket has one round.

A row finishes with its last planned round, with a stop token, or when its logits are not finite. The batch keeps its
shape, so a finished row repeats its last round: it reads the same token at the same position, rewrites identical KV,
and draws nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import StepInputs
from jaxserve.runner.step.forward_pass import Drawn
from jaxserve.runner.step.row_ends import has_ended_before, is_stop
from jaxserve.runner.step.step_output import packed_size
from jaxserve.runner.step.tapped_tokens import RoundTaps


class RoundResults(NamedTuple):
    """The results of all rounds, R = bucket.max_rounds; `num_rounds` of them ran, the others hold zeros.

    num_tokens: of each row, those of its first rounds. taps: of tokens that were read; None: there are none.
    """

    num_rounds: Int32[Array, ""]
    num_tokens: Int32[Array, "S"]
    tokens: Int32[Array, "R S"]
    is_bad: Bool[Array, "R S"]
    logprobs: Int32[Array, "R O"]
    taps: RoundTaps | None


Carry = tuple[DeviceState, StepInputs, jax.Array, RoundResults]  # the third: rows that are not finished

# (state, inputs, unfinished rows) -> (state, drawn tokens, taps of the tokens that were read): one forward pass.
Advance = Callable[[DeviceState, StepInputs, jax.Array], tuple[DeviceState, Drawn, RoundTaps | None]]


def run_decode_rounds(
    advance: Advance,
    layout: BatchLayout,
    buffer: Int32[Array, "B"],
    state: DeviceState,
    inputs: StepInputs,
    max_logprobs: int,
    taps: RoundTaps | None,
) -> tuple[DeviceState, RoundResults]:
    """Run the decode rounds of a batch; the state is carried through the loop, so it is updated in place.

    inputs: of the first round. taps: zeros of all rounds.
    """
    rows = layout.split(buffer)["rows"]
    num_rounds = rows[:, ROW_INDEX["max_tokens"]]
    is_finished = has_ended_before(rows, inputs.tokens, inputs.starts)

    table, num_logprobs = (layout.bucket.max_rounds, len(rows)), packed_size(len(rows), max_logprobs)
    empty = RoundResults(
        num_rounds=jnp.int32(0),
        num_tokens=jnp.zeros_like(num_rounds),
        tokens=jnp.zeros(table, jnp.int32),
        is_bad=jnp.zeros(table, jnp.bool_),
        logprobs=jnp.zeros((layout.bucket.max_rounds, num_logprobs), jnp.int32),
        taps=taps,
    )
    carry: Carry = state, inputs, (num_rounds > 0) & ~is_finished, empty

    def is_unfinished(carry: Carry) -> jax.Array:
        return jnp.any(carry[2])

    def run_round(carry: Carry) -> Carry:
        state, inputs, is_active, rounds = carry
        state, drawn, taps = advance(state, inputs, is_active)
        num_done, num_tokens = rounds.num_rounds + 1, rounds.num_tokens + is_active.astype(jnp.int32)
        is_finished = drawn.is_bad | is_stop(rows, drawn.tokens, inputs.starts + 1) | (num_done >= num_rounds)
        is_active &= ~is_finished
        starts = jnp.where(is_active, inputs.starts + 1, inputs.starts)
        inputs = StepInputs(starts, inputs.query_lens, jnp.where(is_active, drawn.tokens, inputs.tokens))

        def with_round(table: jax.Array, of_round: jax.Array) -> jax.Array:
            return lax.dynamic_update_index_in_dim(table, of_round, rounds.num_rounds, 0)

        tables = jax.tree.map(with_round, tuple(rounds[2:]), (*drawn, taps))
        return state, inputs, is_active, RoundResults(num_done, num_tokens, *tables)

    # Before each turn of a loop that ends by data, a GPU waits for the host, which queues no other step meanwhile.
    if layout.bucket.max_rounds == 1:
        state, _, _, rounds = run_round(carry)
    else:
        state, _, _, rounds = lax.while_loop(is_unfinished, run_round, carry)
    return state, rounds
