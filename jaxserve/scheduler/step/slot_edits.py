"""Host: which `SlotEdits` a step takes along: before it, and before its late rows draw.

Bad words of several tokens are bans that depend on the tokens so far. Of a row whose last token is in flight they are
not known when its step is planned: such a row draws late, after the step before has been committed.
"""

from collections.abc import Collection

import numpy as np

from jaxserve.core.device_ops import SlotEdits
from jaxserve.scheduler.logit_edits import banned_next, has_edits, make_edits
from jaxserve.scheduler.state import SchedulerState


def early_edits(state: SchedulerState, slots: np.ndarray, new_slots: list[int]) -> tuple[SlotEdits, ...]:
    """All edits of new slots, and the changed bans of those of `slots` whose tokens are all known."""
    slot_table = state.slot_table
    is_known = slot_table.num_scheduled[slots] < slot_table.num_tokens[slots]
    changing = slots[slot_table.draws_late[slots] & is_known].tolist()
    return _edits(state, {*new_slots, *changing}, new_slots)


def late_edits(state: SchedulerState, slots: np.ndarray) -> tuple[SlotEdits, ...]:
    """The changed bans of slots that draw late; the steps before are committed."""
    return _edits(state, slots.tolist(), ())


def _edits(state: SchedulerState, slots: Collection[int], new_slots: Collection[int]) -> tuple[SlotEdits, ...]:
    edits: list[SlotEdits] = []
    for slot in slots:
        sequence = state.occupant(slot)
        if not has_edits(sequence.request):
            continue
        banned = banned_next(sequence.request, sequence.tokens[sequence.prompt_len :])
        if slot in new_slots or banned != state.banned[slot]:
            state.banned[slot] = banned
            edits.append(make_edits(sequence.request, slot, banned))
    return tuple(edits)
