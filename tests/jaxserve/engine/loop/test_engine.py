"""The step loop is one step ahead of the device, and dies with it."""

import pytest

from jaxserve.core.errors import EngineDeadError, RequestError
from jaxserve.engine.loop.multi_step_budget import MultiStepBudget
from jaxserve.runner.fake.fake_model import FakeModel
from tests.support.fakes.fake_engine import make_engine, make_request, naive


class Trace:
    """Records the calls of the engine; fails at a given one."""

    def __init__(self, runner, broken_call: tuple[str, int] | None = None):
        self.runner, self.calls, self.broken_call = runner, [], broken_call

    def submit(self, plan):
        return self._call("submit", plan.step_id, plan)

    def has_run(self, ticket):
        return self.runner.has_run(ticket)

    def draw(self, ticket, late):
        self.calls.append(("draw", ticket))
        return self.runner.draw(ticket, late)

    def collect(self, ticket):
        return self._call("collect", ticket, ticket)

    def _call(self, name, number, argument):
        self.calls.append((name, number))
        if (name, number) == self.broken_call:
            raise RuntimeError("the device is gone")
        return getattr(self.runner, name)(argument)


def test_the_next_step_is_submitted_before_the_last_is_collected():
    engine = make_engine()
    engine.runner = trace = Trace(engine.runner)
    engine.add(make_request("a", 4, 3))
    assert sum(len(deltas) for deltas in engine.drain()) == 3
    assert trace.calls == [("submit", 0), ("submit", 1), ("collect", 0), ("submit", 2), ("collect", 1), ("collect", 2)]


def test_late_rows_draw_when_the_step_before_is_collected():
    engine = make_engine()
    engine.runner = trace = Trace(engine.runner)
    engine.add(make_request("a", 4, 3, bad_words=((1, 2),)))
    assert sum(len(deltas) for deltas in engine.drain()) == 3
    first, second, third = ([(name, step) for name in ("submit", "draw", "collect")] for step in range(3))
    assert trace.calls == [first[0], second[0], first[2], second[1], third[0], second[2], third[1], third[2]]


@pytest.mark.parametrize("is_hidden", [True, False])
def test_rounds_of_steps_with_a_late_row_grow_while_the_device_waits_for_the_host(is_hidden):
    engine = make_engine()
    engine.multi_step, rounds = MultiStepBudget(16, 16), []
    engine.runner = runner = Trace(engine.runner)
    runner.has_run = lambda ticket: is_hidden
    submit = runner.submit
    runner.submit = lambda plan: rounds.append(plan.num_rounds) or submit(plan)
    for request in (make_request("late", 4, 8, bad_words=((1, 2),)), make_request("a", 4, 40)):
        engine.add(request)
    for _ in range(8):
        engine.step()
    assert rounds == ([1, 1, 2, 3, 4, 5, 6, 7] if is_hidden else [1] * 8)


def test_deltas_add_up_to_the_sequences():
    engine = make_engine(model=FakeModel(stop_chance=0.1))
    requests = [make_request(str(i), 3 + i, 20, seed=i, n=1 + i % 2) for i in range(6)]
    sequences = [s for request in requests for s in engine.add(request)]
    seen = {s.sequence_id: [] for s in sequences}
    for deltas in engine.drain():
        rows = zip(deltas.sequences, deltas.tokens.tolist(), deltas.is_finished, strict=True)
        for sequence, token, is_finished in rows:
            seen[sequence.sequence_id].append(token)
            assert is_finished == sequence.is_finished
    assert seen == {s.sequence_id: s.token_ids for s in sequences}


@pytest.mark.parametrize("broken_call", [("submit", 0), ("submit", 3), ("collect", 0), ("collect", 2)])
def test_a_broken_runner_ends_the_engine_and_all_its_requests(broken_call):
    engine = make_engine()
    engine.runner = Trace(engine.runner, broken_call)
    sequences = [s for i in range(12) for s in engine.add(make_request(str(i), 4, 10, n=2))]
    with pytest.raises(EngineDeadError, match="the device is gone"):
        list(engine.drain())
    assert {s.finish_reason for s in sequences} == {"error"}
    with pytest.raises(EngineDeadError):
        engine.live()
    assert not engine.has_work
    for call in (engine.step, lambda: engine.add(make_request("late", 4))):
        with pytest.raises(EngineDeadError):
            call()
    engine.scheduler.abort("1")


def test_a_refused_request_affects_no_other():
    engine = make_engine()
    good = make_request("good", 4, 10)
    (sequence,) = engine.add(good)
    engine.step()
    with pytest.raises(RequestError):
        engine.add(make_request("good", 4))  # an id in use
    for _ in engine.drain():
        pass
    assert sequence.token_ids == naive(good)[0]


def test_there_is_work_until_the_last_step_is_collected():
    engine = make_engine()
    engine.add(make_request("a", 4, 10))
    engine.step()
    engine.scheduler.abort("a")
    assert engine.has_work
    assert len(engine.step()) == 0
    assert not engine.has_work
    assert engine.scheduler.stats.num_pages_free == 199


@pytest.mark.parametrize("num_commits", range(4))
def test_an_interrupt_after_a_commit_does_not_commit_again(num_commits):
    engine = make_engine()
    request = make_request("a", 4, 6)
    (sequence,) = engine.add(request)
    commit, countdown = engine.scheduler.commit, iter([False] * num_commits + [True])

    def commit_and_stop(plan, outcome):
        deltas = commit(plan, outcome)
        if next(countdown, False):
            raise KeyboardInterrupt
        return deltas

    engine.scheduler.commit = commit_and_stop
    with pytest.raises(KeyboardInterrupt):
        list(engine.drain())
    for _ in engine.drain():
        pass
    assert sequence.token_ids == naive(request)[0]
    assert engine.scheduler.stats.num_pages_free == 199


def test_an_interrupt_in_the_observer_loses_no_step():
    engine = make_engine()
    request = make_request("a", 4, 6)
    (sequence,) = engine.add(request)

    def stop(record):
        engine.observer = None
        raise KeyboardInterrupt

    engine.observer = stop
    with pytest.raises(KeyboardInterrupt):
        list(engine.drain())
    for _ in engine.drain():
        pass
    assert sequence.token_ids == naive(request)[0]


def test_requests_may_join_and_leave_between_steps():
    engine = make_engine()
    requests = [make_request(str(i), 5, 12, seed=i) for i in range(12)]
    sequences = []
    for i, request in enumerate(requests):
        sequences += engine.add(request)
        engine.step()
        if i % 4 == 3:
            engine.scheduler.abort(str(i))
    for _ in engine.drain():
        pass
    for i, (sequence, request) in enumerate(zip(sequences, requests, strict=True)):
        tokens = naive(request)[0]
        assert sequence.token_ids == (tokens[: len(sequence.token_ids)] if i % 4 == 3 else tokens)
        assert (sequence.finish_reason == "abort") == (i % 4 == 3)
