"""Time limits: a late sequence ends in the next step with its tokens, and affects no other; the clock is simulated."""

import pytest

from jaxserve.core.options.scheduling_options import SchedulingOptions
from tests.support.fakes.fake_engine import SimulatedClock, make_engine, make_request, naive
from tests.support.fakes.scheduler_laws import Watch

LONG = {"max_tokens": 50, "ignore_eos": True}


@pytest.fixture
def clock():
    return SimulatedClock()


def add(engine, name, prompt=6, *, max_tokens=8, n=1, ignore_eos=False, **scheduling):
    options = {
        "arrival_s": engine.clock(),
        "scheduling": SchedulingOptions(**scheduling),
        "n": n,
        "ignore_eos": ignore_eos,
    }
    return engine.add(make_request(name, prompt, max_tokens, seed=len(name), **options))


def run(engine, num_steps, step_s=1.0):
    """Sequences that steps reported as ended, with their finish reasons."""
    ended = []
    for _ in range(num_steps):
        engine.clock.now_s += step_s
        deltas = engine.step()
        ended += [
            (s.request.request_id, s.finish_reason)
            for s, e in zip(deltas.sequences, deltas.is_finished, strict=True)
            if e
        ]
    return ended


@pytest.mark.parametrize("is_overlapped", [True, False])
def test_a_deadline_ends_a_running_sequence_which_keeps_its_tokens(clock, is_overlapped):
    engine = make_engine(clock=clock)
    engine.is_overlapped, watch = is_overlapped, Watch(engine)
    (late,), (other,) = add(engine, "late", deadline_s=9.5, **LONG), add(engine, "other", **LONG)
    assert run(engine, 9) == []
    num_tokens = len(late.token_ids)
    assert run(engine, 1) == [("late", "timeout")]
    watch.check()
    assert 5 < len(late.token_ids) == num_tokens
    assert late.token_ids == naive(late.request)[0][:num_tokens]
    for _ in engine.drain():
        pass
    assert (other.token_ids, other.finish_reason) == naive(other.request)
    assert engine.scheduler.stats.num_pages_free == engine.scheduler.state.pool.num_pages - 1


def test_a_queue_timeout_ends_only_sequences_that_have_not_started(clock):
    engine = make_engine(clock=clock, max_num_seqs=1)
    (first,) = add(engine, "first", queue_timeout_s=3, **LONG)
    add(engine, "second", queue_timeout_s=3)
    (third,) = add(engine, "third", queue_timeout_s=300)
    assert run(engine, 2) == []
    assert run(engine, 1) == [("second", "timeout")]
    assert (first.finish_reason, len(engine.scheduler.state.waiting)) == (None, 1)
    for _ in engine.drain():
        pass
    assert (third.token_ids, third.finish_reason) == naive(third.request)


def test_a_queue_timeout_does_not_end_a_preempted_sequence(clock):
    engine = make_engine(clock=clock, num_pages=18, max_num_seqs=4)
    sequences = [add(engine, "x" * i, 12, queue_timeout_s=5, max_tokens=40, ignore_eos=True)[0] for i in range(1, 4)]
    run(engine, 120)
    assert engine.scheduler.stats.num_preemptions > 0
    assert [s.finish_reason for s in sequences] == ["length"] * 3


def test_each_sample_has_its_own_queue_timeout(clock):
    engine = make_engine(clock=clock, max_num_seqs=2)
    samples = add(engine, "a", n=3, queue_timeout_s=4, **LONG)
    run(engine, 6)
    assert [s.finish_reason for s in samples] == [None, None, "timeout"]


def test_a_sequence_that_is_late_before_its_first_step_never_runs(clock):
    engine = make_engine(clock=clock)
    (sequence,) = add(engine, "a", deadline_s=1)
    assert run(engine, 1, step_s=2) == [("a", "timeout")]
    assert not sequence.has_started
    assert not engine.has_work


def test_an_end_is_reported_after_an_interrupt(clock):
    engine = make_engine(clock=clock)
    add(engine, "late", deadline_s=2, **LONG)
    add(engine, "other", **LONG)
    run(engine, 1)
    submit = engine.runner.submit

    def interrupted(plan):
        engine.runner.submit = submit
        raise KeyboardInterrupt

    engine.runner.submit = interrupted
    clock.now_s = 5
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert run(engine, 1) == [("late", "timeout")]
