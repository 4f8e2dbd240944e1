"""Host: drafts of rows with a grammar: how many of them the grammar allows, and what it allows after each.

    node      {"a        drafts   ":   1   }   x        legal: three, and the masks after them are known
    mask      after it            m1   m2  m3

A row then advances by drafts as any other: as far as they are what is drawn, by these masks.
"""

import numpy as np

from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.step_plan import LateDrafts
from jaxserve.scheduler.logit_edits import goes_on
from jaxserve.scheduler.state import SchedulerState

MASK_ROW = SAMPLING_INDEX["mask_row"]


def mask_drafts(state: SchedulerState, slots: np.ndarray, drafts: list[list[int]], max_drafts: int) -> LateDrafts:
    """Of slots that draw late, whose own masks are set. Each mask row behind the first has a reference for its place
    here, which the caller releases."""
    mask_rows = np.zeros((len(slots), 1 + max_drafts), np.int32)
    mask_rows[:, 0] = state.slot_table.sampling[slots, MASK_ROW]
    num = np.zeros(len(slots), np.int32)
    sequences = [state.occupant(slot) for slot in slots.tolist()]
    by_id = {s.sequence_id: tokens for s, tokens in zip(sequences, drafts, strict=True) if tokens}
    if not by_id:
        return LateDrafts(num, mask_rows)
    assert state.constraints is not None
    found = state.constraints.masks_along(by_id)
    for i, sequence in enumerate(sequences):
        for mask in found.get(sequence.sequence_id, ()):
            if not goes_on(sequence, mask, by_id[sequence.sequence_id][: num[i] + 1]):
                break  # the text is complete, or cannot go on: that is seen when the draft is drawn
            num[i] += 1
            mask_rows[i, num[i]] = state.mask_rows.acquire(mask)
    return LateDrafts(num, mask_rows)
