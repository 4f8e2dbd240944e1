"""Host: late rows: which rows of a step draw after it, and by what: bans and masks that depend on the token before."""

import numpy as np

from jaxserve.core.request import Request
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.scheduler.logit_edits import goes_on, limits
from jaxserve.scheduler.state import SchedulerState
from jaxserve.scheduler.step.late_drafts import MASK_ROW, mask_drafts
from jaxserve.scheduler.step.slot_edits import late_edits

DEAD_END = "the grammar allows no token here"


def late_rows(
    state: SchedulerState,
    slots: np.ndarray,
    extra_rows: np.ndarray,
    in_flight: np.ndarray,
    samples: np.ndarray,
    *,
    draws_once: bool,
) -> np.ndarray:
    """Rows that must draw late, those of `extra_rows` where the host must see a token that is in flight, and all with a
    grammar, whose masks are then computed while the device works; and with one of these all others that draw.

    Logits are then computed once, after the step, for all rows, and not in the step for some and after it for others:
    the head's weights are read once. Where others draw more than one token, and in verify buckets, these draw within
    their rounds, and beams' tokens are chosen from what the step itself computes.

    in_flight, samples: bool[S]: the token before is not committed yet; the row draws. draws_once: a row of the step
    draws one token at most.
    """
    slot_table, extra = state.slot_table, slots[extra_rows]
    waits = in_flight[extra_rows] | slot_table.has_grammar[extra]
    late = extra_rows[slot_table.draws_late[extra] & waits & samples[extra_rows]]
    if not draws_once or not len(late):
        return late
    return np.flatnonzero(samples & ~slot_table.is_beam[slots])


def late_draw(state: SchedulerState, plan: StepPlan, drafts: list[list[int]] | None = None) -> LateDraw:
    """How the plan's late rows draw; the steps before it are committed. Rows whose next token is known by now (forced
    by a grammar), or that cannot go on, draw nothing, nor do those that have ended.

    drafts: of each late row; None: they have none. From now on it is known how many of them a row may advance by.
    """
    slot_table, rows = state.slot_table, plan.late_rows
    slots = plan.slots[rows]
    is_live = slot_table.epoch[slots] == plan.epochs[rows]
    next_positions = slot_table.num_scheduled[slots] - (plan.max_tokens[rows] - 1)
    draws = is_live & (slot_table.num_tokens[slots] == next_positions)
    if (has_grammar := slot_table.has_grammar[slots] & draws).any():
        draws[has_grammar] = _set_masks(state, slots[has_grammar])
    plan.withdraw(rows[is_live & ~draws])
    late_drafts = None
    if drafts is not None:
        drawing = [drafts[i] for i in np.flatnonzero(draws).tolist()]
        late_drafts = mask_drafts(state, slots[draws], drawing, plan.bucket.max_drafts)
        max_tokens = np.ones(len(rows), np.int32)
        max_tokens[draws] += late_drafts.num
        slot_table.num_scheduled[slots[is_live]] -= plan.limit_tokens(rows[is_live], max_tokens[is_live])
    uploads = state.mask_rows.take_uploads()
    if late_drafts is not None:
        for row in late_drafts.mask_rows[:, 1:].ravel().tolist():
            state.mask_rows.release(row)  # what follows on the device comes after this draw
    slots = slots[draws]
    ops = (*late_edits(state, slots), *uploads)
    return LateDraw(rows[draws], slots, slot_table.sampling.take(slots, axis=0), ops, late_drafts)


def _set_masks(state: SchedulerState, slots: np.ndarray) -> np.ndarray:
    """Give slots the mask rows of what their grammars allow; returns bool[N]: the slot can go on."""
    assert state.constraints is not None
    sequences = [state.occupant(slot) for slot in slots.tolist()]
    masks = state.constraints.masks(sequence.sequence_id for sequence in sequences)
    is_open = np.zeros(len(slots), bool)
    for i, (slot, sequence) in enumerate(zip(slots.tolist(), sequences, strict=True)):
        mask = masks.get(sequence.sequence_id)
        if mask is None:
            continue
        if not goes_on(sequence, mask):
            state.constraints.end(sequence.sequence_id, _dead_end(sequence.request))
            continue
        state.mask_rows.release(int(state.slot_table.sampling[slot, MASK_ROW]))
        state.slot_table.sampling[slot, MASK_ROW] = state.mask_rows.acquire(mask)
        is_open[i] = True
    return is_open


def _dead_end(request: Request) -> str:
    names = limits(request)
    return f"{DEAD_END} that {' and '.join(names)} leave" if names else DEAD_END
