"""Device: several tokens of each row in one step: rounds of a batch that decodes, until all of its rows have ended.

A row ends with its last planned round, with a stop token, or when its logits are not finite. The batch keeps its
shape, so a row that has ended repeats its last round: it reads the same token at the same position again, stores the
same key and value, and draws nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX, STOP_FIELDS
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.device_batch import StepInputs, first_inputs
from jaxserve.runner.step.pack import BatchLayout


class DrawnTokens(NamedTuple):
    """What one round drew. logprobs: packed, O = S·(2 + 2k)."""

    tokens: Int32[Array, "S"]
    is_bad: Bool[Array, "S"]
    logprobs: Int32[Array, "O"]


class LoopCarry(NamedTuple):
    """What all R = bucket.max_rounds of them drew, `count` of which ran; zeros beyond."""

    count: Int32[Array, ""]
    tokens: Int32[Array, "R S"]
    is_bad: Bool[Array, "R S"]
    logprobs: Int32[Array, "R O"]


# (state, inputs, rows that have not ended) -> (state, what was drawn): one pass through the model.
Advance = Callable[[DeviceState, StepInputs, jax.Array], tuple[DeviceState, DrawnTokens]]


def run_rounds(
    advance: Advance, layout: BatchLayout, buffer: Int32[Array, "B"], state: DeviceState
) -> tuple[DeviceState, LoopCarry]:
    """Rounds of a decode bucket; the state is carried, so that it is updated in place."""
    rows = layout.split(buffer)["rows"]
    num_rounds = rows[:, ROW_INDEX["rounds"]]
    inputs = first_inputs(layout, buffer, state)
    # Whoever drew a stop token in the step in flight at planning time has ended, which the host could not know yet.
    has_ended = (rows[:, ROW_INDEX["start"]] < 0) & _is_stop(rows, inputs.tokens, inputs.starts)

    _, drawn = jax.eval_shape(advance, state, inputs, has_ended)
    nothing = [jnp.zeros((layout.bucket.max_rounds, *a.shape), a.dtype) for a in drawn]
    carry = state, inputs, (num_rounds > 0) & ~has_ended, LoopCarry(jnp.int32(0), *nothing)

    def is_left(carry: tuple) -> jax.Array:
        return jnp.any(carry[2])

    def run(carry: tuple) -> tuple:
        state, inputs, is_active, rounds = carry
        state, drawn = advance(state, inputs, is_active)
        count = rounds.count + 1
        has_ended = drawn.is_bad | _is_stop(rows, drawn.tokens, inputs.starts + 1) | (count >= num_rounds)
        is_active &= ~has_ended
        inputs = StepInputs(
            jnp.where(is_active, inputs.starts + 1, inputs.starts), jnp.where(is_active, drawn.tokens, inputs.tokens)
        )
        kept = [
            lax.dynamic_update_index_in_dim(table, of_round, rounds.count, 0)
            for table, of_round in zip(rounds[1:], drawn, strict=True)
        ]
        return state, inputs, is_active, LoopCarry(count, *kept)

    state, _, _, rounds = lax.while_loop(is_left, run, carry)
    return state, rounds


def _is_stop(rows: Int32[Array, "S F"], tokens: Int32[Array, "S"], positions: Int32[Array, "S"]) -> Bool[Array, "S"]:
    """Whether a token at this position ends its row."""
    stop_ids = jnp.stack([rows[:, ROW_INDEX[name]] for name in STOP_FIELDS], axis=1)
    return jnp.any(stop_ids == tokens[:, None], axis=1) & (positions >= rows[:, ROW_INDEX["min_len"]])
