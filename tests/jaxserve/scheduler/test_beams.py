"""Beams: the host chooses the tokens, children share full pages, and preemption and aborts change no candidate."""

import numpy as np
import pytest

from jaxserve.core.device_ops import Forks
from jaxserve.core.step_outcome import TopLogprobs
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.queue_limits import QueueLoad
from tests.support.fakes.branching import CopyWatch, Host, run
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive
from tests.support.fakes.scheduler_fuzz import POOLS, make_pool_engine

WINDOWS = [(None,), (5, None), (4,), (8, None, 5)]


def hosts_of(engine, count: int, *, width: int = 3, max_tokens: int = 12, seed: int = 0) -> list[Host]:
    requests = [make_request(f"b{i}", 3 + 4 * i, max_tokens, seed=i) for i in range(count)]
    return [Host(engine, request, width, seed + i) for i, request in enumerate(requests)]


@pytest.mark.parametrize("windows", WINDOWS)
def test_forks_copy_only_a_partial_last_page(windows):
    engine = make_engine(windows, num_pages=400)
    watch = CopyWatch(engine, is_ample=True)
    hosts = hosts_of(engine, 2, width=4, max_tokens=30)
    run(engine, hosts, watch)
    num_forks, num_partial = (sum(getattr(h, name) for h in hosts) for name in ("num_forks", "num_partial"))
    assert watch.num_forks == num_forks > num_partial > 20
    assert watch.num_copies == num_partial * len(windows)
    # Prompts once, and each beam's newest token once: nothing is computed again.
    assert watch.num_tokens == 3 + 7 + sum(h.num_grown for h in hosts)
    assert engine.scheduler.stats.num_preemptions == 0


def test_children_share_the_full_pages_of_their_parent():
    scheduler = make_scheduler()
    beams = scheduler.add_beams(make_request("a", 10, 9), 3, 2)
    pause(Driver(scheduler))
    assert scheduler.waits_for_host
    scheduler.branch("a", [(beams[0], 7), (beams[0], 8), (beams[0], 9)])
    plan = scheduler.schedule()
    table, rows = plan.tables[0], plan.slots.tolist()
    assert plan.tokens[np.argsort(rows)].tolist() == [7, 8, 9]
    assert (plan.starts == 10).all()
    assert len(set(table[:, 0].tolist())) == len(set(table[:, 1].tolist())) == 1
    assert len(set(table[:, 2].tolist())) == 3
    assert plan.ops_of(Forks)[0].src_pages.tolist() == [table[rows.index(beams[0].slot), 2]] * 2


def test_prefix_matches_of_replaced_tokens_are_forgotten():
    scheduler = make_scheduler(prefix_eviction="lru")
    beams = scheduler.add_beams(make_request("a", 10, 9), 2, 2)
    pause(Driver(scheduler))
    for beam in beams:  # as if each had been looked up, and then forked from another
        scheduler.state.matches[beam.sequence_id] = scheduler.state.prefix_cache.match((0, None), beam.tokens)
    scheduler.branch("a", [(beams[0], 7), (beams[0], 8)])
    assert not scheduler.state.matches


def pause(driver: Driver) -> None:
    """Commit the next step, with candidates for its rows."""
    plan = driver.scheduler.schedule()
    shape = plan.num_rows, 5
    top_ids = np.tile(np.arange(5, dtype=np.int32), (plan.num_rows, 1))
    ones = np.ones(plan.num_rows, np.int32)
    driver.commit(plan, logprobs=TopLogprobs(ones * -1.0, ones, top_ids, np.zeros(shape, np.float32)))


@pytest.mark.thinned(10)
@pytest.mark.parametrize("pool", [name for name, options in POOLS.items() if options.get("num_pages", 200) < 100])
def test_small_pools_and_other_requests_change_no_candidate(pool):
    """The hosts compare all candidates with those of texts that run alone."""
    num_preemptions = 0
    for seed in (0, 10):
        engine = make_pool_engine(pool)
        watch = CopyWatch(engine)
        hosts = hosts_of(engine, 3, max_tokens=30, seed=seed)
        requests = [make_request(f"o{i}", 9, 20, seed=seed + i, n=2) for i in range(2)]
        others = [engine.add(request) for request in requests]
        run(engine, hosts, watch, [sequence for samples in others for sequence in samples])
        for request, samples in zip(requests, others, strict=True):
            assert [s.token_ids for s in samples] == [naive(request, i)[0] for i in range(2)]
        num_preemptions += engine.scheduler.stats.num_preemptions
        engine.scheduler.reset_prefix_cache()
        assert engine.scheduler.stats.num_pages_free == engine.scheduler.state.pool.num_pages - 1
    assert num_preemptions > 0


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_more_beams_than_slots_take_turns(is_overlapped):
    engine = make_engine(max_num_seqs=3)
    engine.is_overlapped = is_overlapped
    run(engine, hosts_of(engine, 3, width=4), CopyWatch(engine))
    assert engine.scheduler.stats.num_preemptions > 0


def test_paused_beams_wait_for_their_host_when_nothing_else_runs():
    engine = make_engine()
    (host,) = hosts_of(engine, 1)
    for _ in range(9):
        engine.step()
    assert engine.scheduler.waits_for_host
    assert QueueLoad.of(engine.scheduler.state).num_waiting == 0
    assert host.advance()
    assert not engine.scheduler.waits_for_host


@pytest.mark.parametrize("num_steps", range(1, 12))
def test_abort_returns_the_pages_of_all_beams_of_any_status(num_steps):
    engine = make_engine(num_pages=17, max_num_seqs=5)
    watch = CopyWatch(engine)
    hosts = hosts_of(engine, 3, width=3)
    for _ in range(num_steps):
        engine.step()
        for host in hosts:
            host.advance()
    engine.scheduler.abort("b0")
    hosts[0].has_ended = True
    watch.check()
    run(engine, hosts, watch)
    assert engine.scheduler.stats.num_pages_free == 16


def test_a_beam_whose_logits_are_not_finite_ends_and_no_other_does():
    model = FakeModel(bad_chance=0.2)
    engine = make_engine(model=model)
    (host,) = hosts_of(engine, 1, width=4, max_tokens=40)
    while not any(beam.is_finished for beam in host.beams):
        host.advance()
        engine.step()
    reasons = {beam.finish_reason for beam in host.beams}
    assert reasons == {"error", None}
    engine.scheduler.abort("b0")
    for _ in engine.drain():
        pass
    assert engine.scheduler.stats.num_pages_free == 199
