"""Host: results of prompts: log-probabilities and pooled hidden states of a step, collected in their sequences."""

import numpy as np

from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.sequence import TokenLogprobs
from jaxserve.core.step_outcome import TopLogprobs
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.state import SchedulerState


def collect_logprobs(state: SchedulerState, plan: StepPlan, logprobs: TopLogprobs, live: np.ndarray) -> None:
    """Store the entry of each target of the plan whose row is `live` (bool[S]).

    The rows' KV must have been counted as computed already.
    """
    assert plan.targets is not None
    wanted, ends = plan.sampling[:, SAMPLING_INDEX["num_prompt_logprobs"]].tolist(), np.cumsum(plan.query_lens)
    targets = np.flatnonzero(plan.targets >= 0)
    rows = np.searchsorted(ends, targets, side="right")
    positions = state.slot_table.num_computed[plan.slots[rows]] - ends[rows] + targets + 1
    for i in np.flatnonzero(live[rows]).tolist():
        known = state.occupant(int(plan.slots[rows[i]])).prompt_logprobs
        assert known is not None
        known[positions[i]] = token_logprobs(logprobs, i, wanted[rows[i]])


def token_logprobs(logprobs: TopLogprobs, row: int, num_candidates: int) -> TokenLogprobs:
    """One row, with its first `num_candidates` candidates."""
    return TokenLogprobs(
        float(logprobs.chosen[row]),
        int(logprobs.ranks[row]),
        logprobs.top_ids[row, :num_candidates].copy(),
        logprobs.top[row, :num_candidates].copy(),
    )


def collect_pooled(state: SchedulerState, plan: StepPlan, pooled: np.ndarray, live: np.ndarray) -> None:
    """Store the hidden states of live rows: for "mean" the sum over the chunks, for "last" those of the last chunk."""
    for row in np.flatnonzero(live & plan.is_pooled).tolist():
        sequence, states = state.occupant(int(plan.slots[row])), pooled[row].astype(np.float64)
        is_sum = sequence.request.pooling == "mean" and sequence.pooled is not None
        sequence.pooled = sequence.pooled + states if is_sum else states
