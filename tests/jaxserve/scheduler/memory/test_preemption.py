"""When pages run out the youngest sequences are preempted, and no tokens change."""

import pytest

from jaxserve.scheduler.queue_limits import QueueLoad
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive
from tests.support.fakes.scheduler_laws import Watch


@pytest.mark.parametrize("windows", [(None,), (8, None)])
def test_tokens_do_not_change_by_preemption(windows):
    engine = make_engine(windows, num_pages=34)
    watch = Watch(engine)
    requests = [make_request(str(i), 6 + i, 30, seed=i) for i in range(8)]
    sequences = [engine.add(request)[0] for request in requests]
    for _ in engine.drain():
        pass
    assert engine.scheduler.stats.num_preemptions > 0
    assert watch.num_tokens > sum(s.num_tokens - 1 for s in sequences)
    assert [(s.token_ids, s.finish_reason) for s in sequences] == [naive(request) for request in requests]


def test_the_youngest_is_preempted_first_and_the_oldest_never():
    scheduler = make_scheduler(num_pages=18, max_num_seqs=4)
    sequences = [scheduler.add(make_request(str(i), 12, 40))[0] for i in range(4)]
    driver, preempted = Driver(scheduler), []
    for _ in range(120):
        before = [s for s in sequences if s.slot >= 0 and not s.is_finished]
        driver.steps(1)
        gone = [s for s in before if s.slot < 0 and not s.is_finished]
        still = [s for s in before if s.slot >= 0]
        assert all(victim.sequence_id > other.sequence_id for victim in gone for other in still)
        preempted += gone
    assert preempted
    assert sequences[0] not in preempted
    assert all(s.finish_reason == "length" for s in sequences)


def test_no_more_are_preempted_than_needed():
    """Two rows lack a page each; the pages of one victim, which return when its row in flight commits, serve both."""
    scheduler = make_scheduler(num_pages=18, max_num_seqs=4)
    for i, prompt_len in enumerate([15, 15, 17]):
        scheduler.add(make_request(str(i), prompt_len, 20))
    driver = Driver(scheduler)
    driver.steps(2)
    scheduler.state.pool.allocate(scheduler.stats.num_pages_free)  # leave no free page
    driver.steps(6)
    assert scheduler.stats.num_preemptions == 1
    assert scheduler.state.num_running == 2
    assert QueueLoad.of(scheduler.state).num_waiting == 1


def test_a_preempted_sequence_keeps_the_token_that_was_in_flight():
    scheduler = make_scheduler(num_pages=20, max_num_seqs=2)
    old, young = [scheduler.add(make_request(str(i), 30, 30))[0] for i in range(2)]
    driver = Driver(scheduler)
    drawn = sum(int(plan.samples[plan.slots == 1].sum()) for plan in driver.steps(12))
    assert scheduler.stats.num_preemptions == 1
    num_kept = len(young.token_ids)
    assert num_kept == drawn
    driver.steps(12)
    assert len(young.token_ids) == num_kept
    assert len(old.token_ids) > num_kept
    plans = driver.steps(60)
    assert len(young.token_ids) == 30
    start = next(i for i, plan in enumerate(plans) if 0 in plan.starts)
    computed = [plan.query_lens.tolist() for plan in plans[start : start + 3]]
    assert computed == [[32], [30 + num_kept - 32], [1]]


def test_admission_leaves_pages_for_those_that_run():
    scheduler = make_scheduler(num_pages=17, max_num_seqs=4)
    scheduler.add(make_request("a", 28, 30))
    scheduler.add(make_request("fits", 28, 2))
    scheduler.add(make_request("would overtake", 4, 2))
    driver = Driver(scheduler)
    driver.steps(2)
    # Of 16 pages the two prompts take 7 each and the first token of `a` one; the last is below the watermark.
    assert scheduler.state.num_running == 2
    assert scheduler.stats.num_pages_free == 1
    assert QueueLoad.of(scheduler.state).num_waiting == 1


def test_the_watermark_does_not_apply_while_nothing_runs():
    engine = make_engine(num_pages=17)
    request = make_request("a", 63, 1)
    (sequence,) = engine.add(request)
    for _ in engine.drain():
        pass
    assert sequence.token_ids == naive(request)[0]
