"""Host: what a step told of prompts, put where it belongs in the sequences."""

import numpy as np

from jaxserve.core.row_layout import SAMPLING_FIELDS
from jaxserve.core.sequence import TokenLogprobs
from jaxserve.core.step_outcome import TopLogprobs
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.state import SchedulerState

NUM_PROMPT_LOGPROBS = SAMPLING_FIELDS.index("num_prompt_logprobs")


def collect_logprobs(state: SchedulerState, plan: StepPlan, logprobs: TopLogprobs, live: np.ndarray) -> None:
    """One entry a target of the plan, of rows that are `live`; their KV has just been counted as computed."""
    assert plan.targets is not None
    wanted, ends = plan.sampling[:, NUM_PROMPT_LOGPROBS].tolist(), np.cumsum(plan.query_lens)
    places = np.flatnonzero(plan.targets >= 0)
    rows = np.searchsorted(ends, places, side="right")
    positions = state.slot_table.num_computed[plan.slots[rows]] - ends[rows] + places + 1
    for i in np.flatnonzero(live[rows]).tolist():
        known = state.occupant(int(plan.slots[rows[i]])).prompt_logprobs
        assert known is not None
        known[positions[i]] = token_logprobs(logprobs, i, wanted[rows[i]])


def token_logprobs(logprobs: TopLogprobs, row: int, num_candidates: int) -> TokenLogprobs:
    """One row, with as many candidates as were asked for."""
    return TokenLogprobs(
        float(logprobs.chosen[row]),
        int(logprobs.ranks[row]),
        logprobs.top_ids[row, :num_candidates].copy(),
        logprobs.top[row, :num_candidates].copy(),
    )


def collect_pooled(state: SchedulerState, plan: StepPlan, pooled: np.ndarray, live: np.ndarray) -> None:
    """Add up the chunks of a mean; of the last token's states the latest remain."""
    for row in np.flatnonzero(live & plan.is_pooled).tolist():
        sequence, states = state.occupant(int(plan.slots[row])), pooled[row].astype(np.float64)
        is_sum = sequence.request.pooling == "mean" and sequence.pooled is not None
        sequence.pooled = sequence.pooled + states if is_sum else states
