"""Device: late rows: their step computes the hidden state, and `draw_late` draws from it once the host knows the bans.

    device   | forward t            | draw t | forward t+1          | draw t+1
    host     |   commit t-1, edits -+        |   commit t, edits ----+

The forward pass needs no token on the host; drawing needs what the host makes of the token before (bans). So both run
at once, and a late row advances in every step, as any other. Other rows of the step draw in it.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jaxserve.core.row_layout import ROW_FIELDS, ROW_INDEX, STEP_FIELDS
from jaxserve.core.step_outcome import StepOutcome, TopLogprobs
from jaxserve.core.step_plan import StepPlan
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.device_batch import Heads
from jaxserve.runner.step.draw import draw
from jaxserve.runner.step.step_output import pack_logprobs, read_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import replicate
from jaxserve.sampling.sampling_batch import read_rows


def draw_late(
    settings: StepSettings, params: Params, state: DeviceState, rows: Int32[Array, "L C"]
) -> tuple[DeviceState, Int32[Array, "O"], Int32[Array, "P"]]:
    """Draw the next token of each row's slot; C = len(ROW_FIELDS), and rows that do not sample are padding.

    The results are tokens and is_bad, O = 2·L, and packed log-probabilities, P = L·(2 + 2k).
    """
    slots, samples = rows[:, ROW_INDEX["slot"]], rows[:, ROW_INDEX["samples"]] > 0
    heads = Heads(slots, state.lengths[slots], samples, read_rows(rows))
    tokens, is_bad, logprobs = draw(settings, params, heads, state.last_hidden, state.slots)
    tokens, is_bad = replicate(settings, (tokens, is_bad))
    last_tokens = state.last_tokens.at[slots].set(jnp.where(samples, tokens, state.last_tokens[slots]))
    output = jnp.concatenate([tokens, (is_bad & samples).astype(jnp.int32)])
    return replace(state, last_tokens=last_tokens), output, pack_logprobs(logprobs)


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of a step in flight.

    rows: int64[L], in the step. table: int32[L, len(ROW_FIELDS)]. output, logprobs: of `draw_late`, None before it.
    """

    rows: np.ndarray
    table: np.ndarray
    output: jax.Array | None = None
    logprobs: jax.Array | None = None

    @classmethod
    def of(cls, plan: StepPlan) -> "LateRows":
        table = np.zeros((len(plan.late_rows), len(ROW_FIELDS)), np.int32)
        table[:, ROW_INDEX["slot"]] = plan.slots[plan.late_rows]
        table[:, ROW_INDEX["samples"]] = 1
        table[:, len(STEP_FIELDS) :] = plan.sampling[plan.late_rows]
        return cls(plan.late_rows, table)

    def padded(self, num_rows: int, scratch_slot: int) -> np.ndarray:
        """int32[num_rows, len(ROW_FIELDS)]: the argument of `draw_late`."""
        padded = np.zeros((num_rows, len(ROW_FIELDS)), np.int32)
        padded[:, ROW_INDEX["slot"]] = scratch_slot
        padded[: len(self.rows)] = self.table
        return padded

    def complete(self, outcome: StepOutcome, k: int) -> StepOutcome:
        """The outcome of the step with what its late rows have drawn. k: candidates of each log-probability."""
        assert self.output is not None, "late rows must be drawn before their step is collected"
        count = len(self.rows)
        drawn, is_bad_token = np.asarray(self.output).reshape(2, -1)[:, :count]
        num_tokens, tokens, is_bad = outcome.num_tokens.copy(), outcome.tokens.copy(), outcome.is_bad.copy()
        num_tokens[self.rows], tokens[self.rows, 0], is_bad[self.rows, 0] = 1, drawn, is_bad_token != 0
        outcome = replace(outcome, num_tokens=num_tokens, tokens=tokens, is_bad=is_bad)
        if outcome.logprobs is None or self.logprobs is None:
            return outcome
        found, entries = read_logprobs(np.asarray(self.logprobs), count, k), self.rows * tokens.shape[1]
        return replace(outcome, logprobs=_with_entries(outcome.logprobs, entries, found))


def _with_entries(logprobs: TopLogprobs, entries: np.ndarray, found: TopLogprobs) -> TopLogprobs:
    """The log-probabilities with others in the places of these entries."""

    def placed(table: np.ndarray, values: np.ndarray) -> np.ndarray:
        table = table.copy()
        table[entries] = values
        return table

    return TopLogprobs(
        placed(logprobs.chosen, found.chosen),
        placed(logprobs.ranks, found.ranks),
        placed(logprobs.top_ids, found.top_ids),
        placed(logprobs.top, found.top),
    )
