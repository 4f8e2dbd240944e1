"""A hundred thousand random operations: no page or slot is ever lost, and every output is what a lone run gives."""

import dataclasses
from unittest.mock import patch

import pytest

from jaxserve.core.errors import EngineDeadError
from jaxserve.runner.fake_model import FakeModel
from jaxserve.scheduler import planning, rounds, sharing
from jaxserve.scheduler.forks import make_forks
from jaxserve.scheduler.state import SchedulerState
from tests.support.fake_engine import make_engine
from tests.support.scheduler_laws import Fuzz

MODEL = FakeModel(stop_chance=0.03, bad_chance=0.002)

POOLS = {
    "ample": {"windows": (None,)},
    "small": {"windows": (None,), "num_pages": 17},
    "window": {"windows": (8, None), "num_pages": 40, "max_chunk_tokens": 7},
    "three groups": {"windows": (5, 9, None), "num_pages": 48, "max_num_batched_tokens": 12},
    "windows only, minimal": {"windows": (6,), "num_pages": 12, "max_num_batched_tokens": 8, "max_chunk_tokens": 4},
    "pages of one": {"windows": (None,), "num_pages": 70, "page_size": 1, "max_chunk_tokens": 1},
    "ample windows": {"windows": (4, 3), "num_pages": 300, "page_size": 8},
}
CALM = {"num_operations": 1500, "abort_share": 0.1, "max_operations_a_step": 4}
QUIET = {"num_operations": 300, "abort_share": 0.2, "max_operations_a_step": 2, "max_quiet_steps": 16}
STORM = {"num_operations": 12_800, "abort_share": 0.4, "max_operations_a_step": 16, "longest": 20}


def fuzz(pool: str, seed: int, *, num_operations: int, is_overlapped: bool = True, **habits) -> Fuzz:
    engine = make_engine(model=MODEL, **POOLS[pool])
    engine.is_overlapped = is_overlapped
    fuzz = Fuzz(engine, seed, model=MODEL, is_ample="ample" in pool, **habits)
    fuzz.run(num_operations)
    return fuzz


@pytest.mark.parametrize("habits", [QUIET, CALM, STORM], ids=["quiet", "calm", "storm"])
@pytest.mark.parametrize("pool", POOLS)
def test_random_operations_keep_every_law(pool, habits):
    done = fuzz(pool, seed=0, **habits)
    done.check_outputs()
    scheduler = done.engine.scheduler
    assert scheduler.num_pages_free == scheduler.state.pool.num_pages - 1
    assert sum(scheduler.num_pages_held) == 0
    assert done.watch.num_forks > 0
    assert (scheduler.num_preemptions == 0) == ("ample" in pool)
    if habits is QUIET and pool != "pages of one":  # there somebody always waits for pages
        assert done.watch.num_rounds > done.watch.num_steps * (1.4 if "ample" in pool else 1)


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
