"""Ends of sequences: by a token, a limit, bad logits, an abort or the text, also with a step in flight."""

import numpy as np
import pytest

from jaxserve.core.sequence import Status
from jaxserve.core.token_deltas import NO_TOKEN
from tests.support.fakes.fake_engine import Driver, make_request, make_scheduler

STOP, EOS, TOKEN = 7, 0, 5


def started(num_steps: int, **request):
    """A scheduler with one request after some steps, of which the last is in flight."""
    scheduler = make_scheduler()
    (sequence,) = scheduler.add(make_request("a", 6, **request))
    driver = Driver(scheduler, TOKEN)
    driver.steps(num_steps)
    return scheduler, sequence, driver


def draw(driver: Driver, token: int, **outcome):
    """Commit the step in flight with this token."""
    plan = driver.in_flight
    return driver.commit(plan, tokens=np.full(plan.num_rows, token, np.int32), **outcome)


@pytest.mark.parametrize(
    ("token", "params", "reason", "stop_reason"),
    [
        (EOS, {}, "stop", None),
        (EOS, {"ignore_eos": True}, None, None),
        (EOS, {"ignore_eos": True, "stop_token_ids": [EOS]}, "stop", EOS),
        (EOS, {"stop_token_ids": [EOS]}, "stop", None),
        (STOP, {"stop_token_ids": [3, STOP]}, "stop", STOP),
        (STOP, {}, None, None),
        (STOP, {"stop_token_ids": [STOP], "min_tokens": 4}, None, None),
        (STOP, {"stop_token_ids": [STOP], "min_tokens": 3}, "stop", STOP),
        (STOP, {"max_tokens": 4}, "length", None),
        (EOS, {"max_tokens": 4}, "stop", None),
    ],
)
def test_the_fourth_token_ends_the_sequence(token, params, reason, stop_reason):
    _, sequence, driver = started(4, **params)
    deltas = draw(driver, token)
    assert deltas.sequences == [sequence]
    assert deltas.tokens.tolist() == [token]
    assert deltas.is_finished.tolist() == [reason is not None]
    assert (sequence.finish_reason, sequence.stop_reason) == (reason, stop_reason)
    assert sequence.token_ids == [TOKEN, TOKEN, TOKEN, token]


def test_the_context_ends_a_sequence_as_max_tokens_does():
    scheduler = make_scheduler(max_model_len=10)
    (sequence,) = scheduler.add(make_request("a", 6, 100))
    Driver(scheduler).steps(8)
    assert (sequence.finish_reason, sequence.num_tokens) == ("length", 10)


def test_no_step_is_planned_past_the_end_of_a_sequence():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 6, 3))
    plans = Driver(scheduler).steps(8)
    assert len(plans) == 3
    assert scheduler.stats.num_pages_free == 199


def test_bad_logits_end_one_sequence_only():
    scheduler = make_scheduler()
    good, bad = [scheduler.add(make_request(name, 6))[0] for name in ("good", "bad")]
    driver = Driver(scheduler)
    driver.steps(3)
    deltas = driver.commit(driver.in_flight, is_bad=np.array([False, True]))
    assert deltas.tokens.tolist() == [5, NO_TOKEN]
    assert (bad.finish_reason, bad.token_ids) == ("error", [5, 5])
    assert (good.finish_reason, good.token_ids) == (None, [5, 5, 5])


def test_results_in_flight_of_an_ended_sequence_are_dropped_and_its_slot_returns_afterwards():
    scheduler = make_scheduler()
    (sequence,) = scheduler.add(make_request("a", 6))
    driver = Driver(scheduler)
    (first,) = driver.steps(1)
    second = scheduler.schedule()
    driver.commit(first, tokens=np.array([EOS], np.int32))
    assert sequence.is_finished
    assert not scheduler.has_work
    assert scheduler.stats.num_pages_referenced_by_group == [2]
    assert len(scheduler.state.slot_table.free_slots) == 7
    assert len(driver.commit(second)) == 0
    assert sequence.token_ids == [EOS]
    assert scheduler.stats.num_pages_referenced_by_group == [0]
    assert len(scheduler.state.slot_table.free_slots) == 8


def test_abort_is_allowed_at_any_time_and_repeatedly():
    for num_steps in range(4):
        scheduler, sequence, driver = started(num_steps) if num_steps else (make_scheduler(), None, None)
        if sequence is None:
            (sequence,) = scheduler.add(make_request("a", 6))
        for name in ("a", "a", "never seen"):
            scheduler.abort(name)
        assert (sequence.status, sequence.finish_reason) == (Status.FINISHED, "abort")
        assert not scheduler.has_work
        if driver is not None:
            assert len(driver.commit(driver.in_flight)) == 0
        assert scheduler.stats.num_pages_free == 199
        assert len(sequence.token_ids) == max(0, num_steps - 1)
        assert scheduler.schedule() is None


def test_an_aborted_id_may_be_used_again():
    scheduler, _, driver = started(2)
    scheduler.abort("a")
    (again,) = scheduler.add(make_request("a", 3, 2))
    driver.steps(4)
    assert again.finish_reason == "length"


def test_the_text_may_end_a_sequence_before_its_last_tokens():
    scheduler, sequence, driver = started(5)
    scheduler.finish(sequence.sequence_id, "stop", keep_tokens=2, stop_reason="END")
    scheduler.finish(sequence.sequence_id, "stop", keep_tokens=1, stop_reason="again")
    draw(driver, TOKEN)
    assert sequence.token_ids == [TOKEN, TOKEN]
    assert (sequence.finish_reason, sequence.stop_reason) == ("stop", "END")
    assert scheduler.stats.num_pages_free == 199
