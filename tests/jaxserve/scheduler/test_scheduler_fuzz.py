"""Thirty thousand random operations: no page or slot is ever lost, and every output is what a lone run gives.

`scripts/prove fuzz` does over a hundred thousand.
"""

import dataclasses
from unittest.mock import patch

import pytest

from jaxserve.core.errors import EngineDeadError
from jaxserve.scheduler import planning, rounds, sharing
from jaxserve.scheduler.forks import make_forks
from jaxserve.scheduler.state import SchedulerState
from tests.support.scheduler_fuzz import CALM, HABITS, POOLS, QUIET, check, fuzz


@pytest.mark.parametrize("habits", HABITS)
@pytest.mark.parametrize("pool", POOLS)
def test_random_operations_keep_every_law(pool, habits):
    check(pool, habits, fuzz(pool, seed=0, **HABITS[habits]))


@pytest.mark.parametrize("pool", ["small", "three groups"])
def test_the_laws_hold_without_overlap(pool):
    fuzz(pool, seed=1, is_overlapped=False, **QUIET).check_outputs()


def changed_forks(**change: str):
    """`make_forks`, with one field replaced by another."""

    def wrong(rows):
        forks = make_forks(rows)
        return forks and dataclasses.replace(forks, **{name: getattr(forks, other) for name, other in change.items()})

    return wrong


FAULTS = {
    "the partial page is not copied": (planning, "make_forks", changed_forks(src_pages="dst_pages")),
    "the wrong slot is forked": (planning, "make_forks", changed_forks(src_slots="dst_slots")),
    "a prefix is shared before it is written": (sharing, "_has_pages", lambda state, slot, shared_len: True),
    "what a window has freed is shared": (
        sharing,
        "_has_pages",
        lambda state, slot, shared_len: state.columns.num_scheduled[slot] >= shared_len,
    ),
    "no pages are taken for later rounds": (rounds, "extend", lambda state, slot, end_page: None),
    "places return too early": (SchedulerState, "is_in_flight", lambda state, slot: False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fuzz_finds_a_planted_fault(fault):
    with patch.object(*FAULTS[fault]), pytest.raises((EngineDeadError, AssertionError)):
        _run_calm_then_quiet()


def _run_calm_then_quiet():
    for habits in (CALM, QUIET):
        fuzz("three groups", seed=0, **habits).check_outputs()
