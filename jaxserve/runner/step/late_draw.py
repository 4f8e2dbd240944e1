"""Device: late rows: their step computes the hidden state, and `draw_late` draws from it once the host knows the bans.

    device   | forward t            | draw t | forward t+1          | draw t+1
    host     |   commit t-1, masks -+        |   commit t, masks ----+

The forward pass needs no token on the host; drawing needs what the host makes of the token before (bans, masks). So
both run at once, and a late row advances in every step, as any other.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jaxserve.core.row_layout import ROW_FIELDS, ROW_INDEX, STEP_FIELDS
from jaxserve.core.step_outcome import StepOutcome, TopLogprobs
from jaxserve.core.step_plan import LateDraw
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


def late_table(late: LateDraw, num_rows: int, scratch_slot: int) -> np.ndarray:
    """int32[num_rows, len(ROW_FIELDS)]: the argument of `draw_late`, with rows of padding."""
    count = len(late.rows)
    table = np.zeros((num_rows, len(ROW_FIELDS)), np.int32)
    table[:, ROW_INDEX["slot"]] = scratch_slot
    table[:count, ROW_INDEX["slot"]] = late.slots
    table[:count, ROW_INDEX["samples"]] = 1
    table[:count, len(STEP_FIELDS) :] = late.sampling
    return table


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of a step in flight: int64[L], their numbers in the step, and the results of `draw_late`."""

    rows: np.ndarray
    output: jax.Array
    logprobs: jax.Array | None

    def complete(self, outcome: StepOutcome, k: int) -> StepOutcome:
        """The outcome of the step with what its late rows have drawn. k: candidates of each log-probability."""
        count = len(self.rows)
        drawn, is_bad_token = np.asarray(self.output).reshape(2, -1)[:, :count]
        num_tokens, tokens, is_bad = outcome.num_tokens.copy(), outcome.tokens.copy(), outcome.is_bad.copy()
        num_tokens[self.rows], tokens[self.rows, 0], is_bad[self.rows, 0] = 1, drawn, is_bad_token != 0
        outcome = replace(outcome, num_tokens=num_tokens, tokens=tokens, is_bad=is_bad)
        if outcome.logprobs is None or self.logprobs is None:
            return outcome
        found, entries = read_logprobs(np.asarray(self.logprobs), count, k), self.rows * tokens.shape[1]
        return replace(outcome, logprobs=with_entries(outcome.logprobs, entries, found))


def with_entries(logprobs: TopLogprobs, entries: np.ndarray, found: TopLogprobs) -> TopLogprobs:
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
