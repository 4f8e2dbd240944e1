"""Host: multi-step decoding: how many tokens each row of a step draws before the step returns, with their pages."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket, Buckets
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.slot_table import NO_SPAN_END
from jaxserve.scheduler.costs.draft_options import DraftPlan
from jaxserve.scheduler.memory.page_tables import extend_table, table_width
from jaxserve.scheduler.memory.preemption import num_available_pages
from jaxserve.scheduler.state import SchedulerState, StepRows


class SlotDrafts(NamedTuple):
    """max_drafts, proposers: int32[slots], as in `StepPlan`."""

    bucket: Bucket
    max_drafts: np.ndarray
    proposers: np.ndarray


@dataclass(frozen=True, slots=True)
class Rounds:
    """num_rounds: forward passes of a step, at most. max_tokens: by slot, as in `StepPlan`; None: one token each.
    drafts: where rows have such."""

    num_rounds: int = 1
    max_tokens: np.ndarray | None = None  # int32[slots]
    drafts: SlotDrafts | None = None


ONE_ROUND = Rounds()


def plan_rounds(
    state: SchedulerState,
    buckets: Buckets,
    decodes: np.ndarray,
    rows: StepRows,
    max_rounds: int,
    max_hidden_rounds: int,
) -> Rounds:
    """One round unless every running sequence decodes and none waits; drafts where all rows decode.

    What a row draws is limited by idle pages: no sequence is preempted for more than its next token. A sequence takes
    part in as many rounds as it needs; with late rows, which take part in the first, up to `max_hidden_rounds`.
    """
    slot_table, groups = state.slot_table, state.groups
    draws_late = slot_table.draws_late[decodes]
    if draws_late.any():
        max_rounds = 1 if draws_late.all() else max_hidden_rounds
    if max_rounds > 1 and not _are_alone(state, decodes, rows):
        max_rounds = 1
    drafts = _plan_drafts(state, buckets, decodes, rows)
    if drafts is None and max_rounds == 1:
        return ONE_ROUND
    if drafts is not None and (drafts.is_trial or draws_late.any()):
        max_rounds = 1
    max_tokens = np.ones(len(slot_table.is_running), np.int32)
    tokens_a_round = 1 if drafts is None else 1 + drafts.max_drafts
    starts = slot_table.num_scheduled[decodes]
    max_computed = slot_table.max_computed[decodes]
    needed = np.minimum(max_computed, slot_table.span_end[decodes]) - starts
    if max_rounds > 1:
        needed[draws_late] = 1
    if drafts is not None:  # a step without more drafts has fewer rounds, and a drop before its time is not undone
        needed[slot_table.span_end[decodes] < NO_SPAN_END] = 1
    num_idle = num_available_pages(state, rows)
    room = slot_table.first_pages[:, decodes] + slot_table.table_widths
    # Before this step is committed a row also takes pages for the next one, of forced tokens a chunk.
    next_tokens = np.where(slot_table.has_grammar[decodes], state.limits.max_chunk_tokens, 1)
    for num_rounds in range(max_rounds, 0, -1):
        counts = np.minimum(needed, num_rounds * tokens_a_round)
        end_pages = groups.end_page(starts + counts)
        missing = np.maximum(end_pages - slot_table.end_page[decodes], 0)
        next_ends = np.minimum(starts + counts + next_tokens, max_computed)
        fits = (groups.end_page(np.maximum(starts + counts, next_ends)) <= room).all()
        if missing.sum() * groups.num_groups <= num_idle and fits:
            for i in np.flatnonzero(missing).tolist():
                extend_table(state, int(decodes[i]), int(end_pages[i]))
            max_tokens[decodes] = counts
            if drafts is None:
                return Rounds(int(counts.max()), max_tokens)
            return Rounds(num_rounds, max_tokens, _by_slot(drafts, decodes, len(max_tokens)))
    return ONE_ROUND


def _by_slot(drafts: DraftPlan, decodes: np.ndarray, num_slots: int) -> SlotDrafts:
    max_drafts, proposers = np.zeros((2, num_slots), np.int32)
    max_drafts[decodes], proposers[decodes] = drafts.max_drafts, drafts.proposers
    return SlotDrafts(drafts.bucket, max_drafts, proposers)


def _plan_drafts(state: SchedulerState, buckets: Buckets, decodes: np.ndarray, rows: StepRows) -> DraftPlan | None:
    """None where decoding is faster, and where some rows read chunks of prompts or of forced tokens. Rows that compute
    one forced token do not draft: their next one is known.
    """
    slot_table = state.slot_table
    if state.speculation is None or rows.slots:
        return None
    if (slot_table.num_scheduled[decodes] < slot_table.prompt_len[decodes]).any():
        return None
    width = table_width(state, decodes, slot_table.num_scheduled[decodes] + 1)
    decode = buckets.fit(len(decodes), len(decodes), width, is_decode=True)
    verify = buckets.fit_verify(len(decodes), int(slot_table.page_tables[0].shape[1]))
    may_draft = slot_table.may_draft[decodes]
    if len(rows.forced):
        may_draft &= ~np.isin(decodes, rows.forced)
    return state.speculation.choose(state.num_planned, slot_table, decodes, may_draft, decode, verify)


def _are_alone(state: SchedulerState, decodes: np.ndarray, rows: StepRows) -> bool:
    """Whether these rows serve every sequence, and the host need not see tokens of beams before the next are drawn."""
    slot_table = state.slot_table
    return (
        len(decodes) == np.count_nonzero(slot_table.is_left)
        and not (rows.slots or rows.reservations or state.waiting or state.deferring or state.preparing)
        and not slot_table.is_beam[decodes].any()
        and not (slot_table.num_tokens[decodes] >= slot_table.max_len[decodes]).any()
        and not slot_table.sampling[decodes, SAMPLING_INDEX["pooling"]].any()
    )
