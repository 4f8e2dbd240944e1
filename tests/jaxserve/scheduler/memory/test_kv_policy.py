"""Streaming sequences: when pages are dropped depends on positions alone, and memory stays within the bound."""

import numpy as np

from jaxserve.core.step_plan import StepPlan
from tests.support.fakes.fake_engine import make_engine, make_request, naive
from tests.support.fakes.scheduler_laws import Watch

NUM_SINKS, WINDOW, PAGE = 3, 10, 4
LIMITS = {"sinks_and_window": (NUM_SINKS, WINDOW), "page_size": PAGE}
MOST_PAGES = -(-(NUM_SINKS + WINDOW) // PAGE) + 1  # and its own


class Spans(Watch):
    """Records what each computed position sees: how many dropped tokens lie before it."""

    def __init__(self, engine):
        super().__init__(engine)
        self.num_dropped: dict[int, int] = {}
        self.most_pages = 0

    def submit(self, plan: StepPlan) -> int:
        slot_table = self.state.slot_table
        for row, slot in enumerate(plan.slots.tolist()):
            end = int(slot_table.num_scheduled[slot])
            start = end - int(plan.max_computed[row])
            self.num_dropped |= dict.fromkeys(range(start, end), int(plan.first_pages[-1, row]) * PAGE)
            self.most_pages = max(self.most_pages, len(slot_table.pages(slot)))
        return super().submit(plan)


def run(windows=(None,), *, num_tokens=200, **limits):
    engine = make_engine(windows, **LIMITS | limits)
    watch = Spans(engine)
    (sequence,) = engine.add(make_request("0", 30, num_tokens, has_kv_policy=True, ignore_eos=True))
    for _ in engine.drain():
        watch.check()
    return engine, watch, sequence


def test_each_token_sees_the_sinks_and_at_most_the_window_whatever_the_chunks():
    expected = {p: max(0, -(-(p + 1 - NUM_SINKS - WINDOW) // PAGE)) * PAGE for p in range(30 + 200 - 1)}
    for limits in ({}, {"max_chunk_tokens": 3}, {"max_chunk_tokens": 1, "max_num_batched_tokens": 8}):
        assert run(**limits)[1].num_dropped == expected
    kept = [p + 1 - dropped for p, dropped in expected.items()]
    assert max(kept) == NUM_SINKS + WINDOW
    assert min(kept[NUM_SINKS + WINDOW :]) == NUM_SINKS + WINDOW - PAGE + 1


def test_memory_stays_within_the_bound_and_returns():
    engine, watch, sequence = run(num_pages=20)
    assert len(sequence.token_ids) == 200
    assert sequence.token_ids == naive(sequence.request)[0]
    assert watch.most_pages == MOST_PAGES
    assert engine.scheduler.stats.num_pages_free == 19


def test_groups_with_windows_keep_their_own_pages():
    engine, watch, _ = run((6, None), num_pages=60)
    assert watch.num_drops == len({d for d in watch.num_dropped.values() if d})
    assert engine.scheduler.stats.num_pages_free == 59


def test_others_keep_all_of_their_tokens():
    engine = make_engine(**LIMITS)
    watch = Spans(engine)
    (sequence,) = engine.add(make_request("0", 30, 200, ignore_eos=True))
    for _ in engine.drain():
        watch.check()
    assert len(sequence.tokens) == 64, "up to the context"
    assert not np.array([*watch.num_dropped.values()]).any()
