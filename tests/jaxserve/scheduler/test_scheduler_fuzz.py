"""Fifteen thousand random operations: no page or slot is ever lost, and every output equals that of a lone run.

`scripts/prove fuzz` does over a hundred thousand.
"""

import dataclasses
from itertools import cycle
from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.device_ops import PageLoad, PageSave
from jaxserve.core.errors import EngineDeadError
from jaxserve.core.step_plan import StepPlan
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.streaming_policy import StreamingPolicy
from jaxserve.scheduler import scheduler
from jaxserve.scheduler.constraints import Constraints
from jaxserve.scheduler.mask_rows import MaskRows
from jaxserve.scheduler.memory import prefix_sharing, slots
from jaxserve.scheduler.memory.fork import make_forks
from jaxserve.scheduler.state import SchedulerState
from jaxserve.scheduler.step import build_plan, late_rows, multi_step
from jaxserve.scheduler.step.late_drafts import mask_drafts
from tests.support.fakes.fake_grammars import FakeMatchers
from tests.support.fakes.scheduler_fuzz import CALM, HABITS, POOLS, QUIET, check, fuzz

# In turn ordinary operations, very many and few; `scripts/prove fuzz` has all three for every pool.
CASES = list(zip(POOLS, cycle(HABITS), strict=False))


@pytest.mark.thinned(6)
@pytest.mark.parametrize(("pool", "habits"), CASES)
def test_random_operations_keep_every_law(pool, habits):
    check(pool, habits, fuzz(pool, seed=0, **HABITS[habits]))


@pytest.mark.parametrize("pool", ["small", "three groups"])
def test_the_laws_hold_without_overlap(pool):
    fuzz(pool, seed=1, is_overlapped=False, **QUIET).check_outputs()


def changed_forks(**change: str):
    """`make_forks` with one field replaced by another."""

    def wrong(rows):
        return [
            dataclasses.replace(forks, **{name: getattr(forks, other) for name, other in change.items()})
            for forks in make_forks(rows)
        ]

    return wrong


FAULTS = {
    "the partial page is not copied": (build_plan, "make_forks", changed_forks(src_pages="dst_pages")),
    "the wrong slot is forked": (build_plan, "make_forks", changed_forks(src_slots="dst_slots")),
    "a prefix is shared before it is written": (prefix_sharing, "_has_pages", lambda state, slot, shared_len: True),
    "pages behind a window are shared": (
        prefix_sharing,
        "_has_pages",
        lambda state, slot, shared_len: state.slot_table.num_scheduled[slot] >= shared_len,
    ),
    "no pages are taken for later rounds": (multi_step, "extend_table", lambda state, slot, end_page: None),
    "slots return too early": (SchedulerState, "is_in_flight", lambda state, slot: False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fuzz_finds_a_planted_fault(fault):
    with patch.object(*FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        _run_calm_then_quiet()


tables = build_plan._tables


def tables_of_upper_bounds(state, slots, starts, ends):
    return tables(state, slots, state.slot_table.num_scheduled[slots], ends)


def test_the_fuzz_finds_rows_that_advance_by_what_was_planned():
    wrong = patch.object(StepPlan, "num_computed", lambda plan, num_tokens: plan.max_computed)
    with wrong, pytest.raises((EngineDeadError, AssertionError)):
        fuzz("drafts, ample", seed=0, **QUIET).check_outputs()


def test_the_fuzz_finds_tables_without_pages_that_rows_see_whose_drafts_are_rejected():
    wrong = patch.object(build_plan, "_tables", tables_of_upper_bounds)
    with wrong, pytest.raises((EngineDeadError, AssertionError)):
        fuzz("drafts, windows", seed=0, **QUIET).check_outputs()


def fuzz_long_rows(pool="drafts, long rows, ample windows"):
    """With more drafts in flight than a step computes tokens."""
    fuzz(pool, seed=0, **QUIET | {"longest": 100}).check_outputs()


def test_steps_of_many_drafts_leave_pages_for_the_next_step():
    """While chunks, after which the size of tables goes, are shorter."""
    fuzz_long_rows("drafts, short chunks, ample windows")


def test_tables_of_windows_hold_rows_with_any_drafts_in_flight():
    fuzz_long_rows()
    wrong = patch.object(Bucket, "max_row_span", property(lambda bucket: 2 * bucket.max_row_tokens))
    with wrong, pytest.raises(EngineDeadError, match=r"table columns, decode\[.*\] holds"):
        fuzz_long_rows()


def test_the_fuzz_finds_sinks_that_are_not_copied():
    wrong = patch.object(StreamingPolicy, "take_ops", lambda policy: policy.drops.clear() or [])
    with wrong, pytest.raises((EngineDeadError, AssertionError)):
        fuzz("streaming, ample", seed=0, **QUIET).check_outputs()


def masks_of_the_token_before():
    """`Constraints.masks` that lags by one call."""
    original, last = Constraints.masks, {}

    def wrong(constraints, sequence_ids):
        found = original(constraints, sequence_ids)
        stale = {i: last.get(i, mask) for i, mask in found.items()}
        last.update(found)
        return stale

    return wrong


def one_mask_a_row():
    """`take_uploads` that sends nothing to a row that has had a mask."""
    take, known = MaskRows.take_uploads, set[int]()

    def wrong(rows):
        uploads = tuple(upload for upload in take(rows) if upload.row not in known)
        known.update(upload.row for upload in uploads)
        return uploads

    return wrong


def test_the_fuzz_finds_rows_that_keep_an_old_mask():
    wrong = patch.object(MaskRows, "take_uploads", one_mask_a_row())
    with wrong, pytest.raises((EngineDeadError, AssertionError)):
        _run_calm_then_quiet()


def rounds_of_late_rows_too(state, buckets, decodes, *args):
    """`plan_rounds` that has late rows draw in all rounds."""
    rounds = multi_step.plan_rounds(state, buckets, decodes, *args)
    if rounds.max_tokens is not None:
        late = decodes[state.slot_table.draws_late[decodes]]
        rounds.max_tokens[late] = rounds.num_rounds
    return rounds


def test_the_fuzz_finds_late_rows_that_draw_more_than_one_token():
    wrong = patch.object(scheduler, "plan_rounds", rounds_of_late_rows_too)
    with wrong, pytest.raises((EngineDeadError, AssertionError)):
        fuzz("grammars, ample", seed=0, **QUIET).check_outputs()


GRAMMAR_FAULTS = {
    "rows draw what is forced already": (StepPlan, "withdraw", lambda plan, rows: None),
    "tokens are forced that may be banned": (slots, "may_force", lambda request: True),
    "a mask is that before the last token": (Constraints, "masks", masks_of_the_token_before()),
}


@pytest.mark.parametrize("fault", GRAMMAR_FAULTS)
def test_the_fuzz_finds_a_fault_of_grammars(fault):
    with patch.object(*GRAMMAR_FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        fuzz("grammars, ample", seed=1, **CALM).check_outputs()


def masks_of_the_node_before(constraints, drafts):
    """`Constraints.masks_along` with that of the row's own token first."""
    return {sequence_id: masks[:-1] for sequence_id, (_, masks) in constraints._matchers.along(drafts).items()}


def drafts_without_masks(state, slots, drafts, max_drafts):
    """`mask_drafts` that takes every draft to be legal."""
    found = mask_drafts(state, slots, [[] for _ in drafts], max_drafts)
    return dataclasses.replace(found, num=np.array([len(tokens) for tokens in drafts], np.int32))


def along_and_ahead(matchers, drafts):
    """`FakeMatchers.along` that leaves the matchers where the drafts end."""
    found = {sequence_id: matchers._along(sequence_id, list(tokens)) for sequence_id, tokens in drafts.items()}
    for sequence_id, (count, _) in found.items():
        matchers._texts[sequence_id] += drafts[sequence_id][:count]
    return found


DRAFT_FAULTS = {
    "masks are shifted by one node": (Constraints, "masks_along", masks_of_the_node_before),
    "an illegal draft is accepted": (late_rows, "mask_drafts", drafts_without_masks),
    "matchers are not rolled back": (FakeMatchers, "along", along_and_ahead),
    "rows without drafts count as if they had them": (
        StepPlan,
        "limit_tokens",
        lambda plan, rows, max_tokens: np.zeros(len(rows), np.int32),
    ),
}


@pytest.mark.parametrize("fault", DRAFT_FAULTS)
def test_the_fuzz_finds_a_fault_of_drafts_with_grammars(fault):
    with patch.object(*DRAFT_FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        fuzz("grammars, drafts, ample", seed=0, **QUIET).check_outputs()


def pin_nothing(host, keys):
    host._pinned.update((key, host._entries[key]) for key in keys)


def transfers_without(kind):
    """`take_transfers` without copies of one kind."""
    original = HostTier.take_transfers
    return lambda host: tuple(t for t in original(host) if not isinstance(t, kind))


HOST_FAULTS = {
    "evicted pages are not saved": (HostTier, "take_transfers", transfers_without(PageSave)),
    "saved pages are not loaded": (HostTier, "take_transfers", transfers_without(PageLoad)),
    "pages about to be loaded are replaced": (HostTier, "pin", pin_nothing),
}


@pytest.mark.parametrize("fault", HOST_FAULTS)
def test_the_fuzz_finds_a_fault_of_the_host_tier(fault):
    with patch.object(*HOST_FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        _run_full_then_small()


def _run_full_then_small():
    for pool in ("host, full", "host, small"):
        fuzz(pool, seed=0, **CALM).check_outputs()


def _run_calm_then_quiet():
    for habits in (CALM, QUIET):
        fuzz("three groups", seed=0, **habits).check_outputs()
