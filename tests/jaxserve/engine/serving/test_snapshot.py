"""A snapshot shows of every page what page tables and prefix cache hold, after any operations."""

import numpy as np
import pytest

from jaxserve.core.sequence import Status
from jaxserve.engine.serving.snapshot import CACHED, FREE, HELD, SCRATCH, SHARED, snapshot
from tests.support.fakes.cached_pages import kept_pages
from tests.support.fakes.fake_engine import make_engine, make_request
from tests.support.fakes.random_operations import Fuzz
from tests.support.fakes.scheduler_fuzz import CALM, MODEL, make_pool_engine


def holders(state) -> np.ndarray:
    """int[P]: how many slots reference each page, counted in their tables one by one."""
    slots = [slot for slot, sequence in enumerate(state.slot_table.sequences) if sequence is not None]
    named = [np.zeros(0, np.int32), *(state.slot_table.pages(slot) for slot in slots)]
    return np.bincount(np.concatenate(named), minlength=state.pool.num_pages)


def is_kept(state) -> np.ndarray:
    kept = np.zeros(state.pool.num_pages, bool)
    if state.prefix_cache is not None:
        kept[kept_pages(state.prefix_cache)] = True
    return kept


def check(engine) -> dict[str, int]:
    """Check the snapshot of an engine against the scheduler's tables."""
    scheduler, state, taken = engine.scheduler, engine.scheduler.state, snapshot(engine)
    by_hand, kept = holders(state), is_kept(state)
    expected = [
        SCRATCH if page == 0 else SHARED if n > 1 else HELD if n else CACHED if kept[page] else FREE
        for page, n in enumerate(by_hand.tolist())
    ]
    assert taken.pages.tolist() == expected
    counts = taken.count_pages()
    assert counts["free"] == scheduler.stats.num_pages_free
    assert counts["cached"] == scheduler.stats.num_pages_cached
    assert counts["held"] + counts["shared"] == sum(scheduler.stats.num_pages_referenced_by_group)
    assert counts["scratch"] == 1
    queued = [s for s in state.sequences.values() if s.status in (Status.WAITING, Status.DEFERRED)]
    assert (taken.num_running, taken.num_waiting) == (np.count_nonzero(state.slot_table.is_running), len(queued))
    if state.connector is not None:
        assert (taken.num_host_pages, taken.max_host_pages) == (state.connector.num_used, state.connector.num_pages)
    return counts


@pytest.mark.parametrize("pool", ["small", "three groups", "prefixes, small", "prefixes, windows", "host, small"])
def test_every_page_is_what_the_tables_say_after_random_operations(pool):
    engine = make_pool_engine(pool, model=MODEL)
    fuzz = Fuzz(engine, seed=3, model=MODEL)
    laws, seen = fuzz.watch.check, dict.fromkeys(("free", "cached", "held", "shared"), 0)

    def watched() -> None:
        laws()
        counts = check(engine)
        seen.update({name: max(most, counts[name]) for name, most in seen.items()})

    fuzz.watch.check = watched
    fuzz.run(CALM["num_operations"] // 3)
    assert all(seen[name] > 0 for name in ("free", "held", "shared"))
    assert (seen["cached"] > 0) == (engine.scheduler.state.prefix_cache is not None)


def test_samples_of_one_prompt_share_its_whole_pages():
    engine = make_engine(page_size=4)
    engine.add(make_request("a", 11, 20, n=3, ignore_eos=True))  # two whole pages and a partial one
    for _ in range(4):
        engine.step()
    assert check(engine)["shared"] == 2


def test_steps_to_come_leave_a_snapshot_alone():
    engine = make_engine()
    engine.add(make_request("a", 9, 20, ignore_eos=True))
    before = snapshot(engine)
    pages = before.pages.copy()
    for _ in engine.drain():
        pass
    engine.add(make_request("b", 30, 2, ignore_eos=True))
    engine.step()
    assert (before.pages == pages).all()
    assert not (snapshot(engine).pages == pages).all()


def test_a_miscounted_reference_is_noticed():
    engine = make_engine()
    engine.add(make_request("a", 9, 20, ignore_eos=True))
    for _ in range(3):
        engine.step()
    check(engine)
    state = engine.scheduler.state
    state.pool.retain(state.slot_table.pages(0)[:1])
    with pytest.raises(AssertionError):
        check(engine)
