"""`AdmissionControl` counts admitted requests once until they reach the engine, and says when to try again."""

import pickle

import pytest

from jaxserve.core.errors import QueueFullError
from jaxserve.engine.serving.admission_control import MAX_RETRY_AFTER_S, AdmissionControl
from jaxserve.engine.serving.engine_metrics import EngineMetrics
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad
from tests.support.fakes.fake_engine import SimulatedClock, make_request

EMPTY = QueueLoad(num_waiting=0, num_tokens=0, num_running=0, num_free=2, num_slots=2)
BUSY = QueueLoad(num_waiting=4, num_tokens=40, num_running=2, num_free=0, num_slots=2)


def make_admission(load=BUSY, **limits):
    clock = SimulatedClock()
    meters = EngineMetrics(load, clock)
    return AdmissionControl(QueueLimits(**(limits or {"max_num_waiting": 4})), meters, clock), meters, clock


def refusal(admission, count=1, num_tokens=10):
    with pytest.raises(QueueFullError) as caught:
        admission.check(count, num_tokens)
    return caught.value


def test_admitted_requests_count_once_until_they_arrive_or_leave():
    admission, meters, _ = make_admission(EMPTY, max_num_waiting=1)
    for key in range(3):
        admission.enter(key, [make_request(str(key), 5)])
    assert meters.num_waiting == 3
    assert refusal(admission).excess == 1
    admission.leave(0)
    admission.leave(0)
    admission.check(1, 1)
    admission.arrive(1, QueueLoad(1, 5, 0, 2, 2))
    assert meters.num_waiting == 2
    admission.arrive(2, QueueLoad(2, 10, 0, 2, 2))
    assert meters.num_waiting == 2
    admission.check(1, 1)
    assert refusal(admission, 2).excess == 1
    admission.publish(QueueLoad(0, 0, 2, 0, 2))  # both have slots now
    assert (meters.num_waiting, meters.num_running, meters.refused) == (0, 2, {"max_num_waiting": 2})


def test_retry_after_is_the_time_in_which_the_excess_leaves():
    """Every second, one starts and another comes in."""
    admission, _, clock = make_admission()
    for i in range(25):
        clock.now_s += 1
        admission.publish(QueueLoad(3, 30, 2, 0, 2))
        admission.enter(i, [make_request(str(i), 10)])
        admission.arrive(i, BUSY)
    assert [refusal(admission, count).retry_after_s for count in (1, 3, 5)] == [1, 3, 5]


def test_tokens_have_a_rate_of_their_own():
    admission, _, clock = make_admission(max_waiting_tokens=40)
    for i in range(10):
        clock.now_s += 1
        admission.publish(QueueLoad(3, 35, 2, 0, 2))
        admission.enter(i, [make_request(str(i), 5)])
        admission.arrive(i, BUSY)
    assert refusal(admission, 1, 35).retry_after_s == 7


def test_where_nothing_leaves_retry_after_grows_to_a_limit():
    admission, _, clock = make_admission()
    waits = []
    for now_s in (0.5, 10, 20):
        clock.now_s = now_s
        waits.append(refusal(admission).retry_after_s)
    assert waits == [3, 10, 20]
    clock.now_s = 29.0
    admission.publish(QueueLoad(3, 30, 2, 0, 2))
    admission.publish(BUSY)
    assert refusal(admission, 5, 50).retry_after_s == 5 * 29
    admission._metrics.load = QueueLoad(10_000, 30, 2, 0, 2)
    assert refusal(admission).retry_after_s == MAX_RETRY_AFTER_S


def test_times_with_an_empty_queue_do_not_count():
    admission, _, clock = make_admission(EMPTY)
    clock.now_s = 25.0
    for i in range(6):
        admission.enter(i, [make_request(str(i), 10)])
    clock.now_s = 28.0
    for i in range(6):
        admission.arrive(i, QueueLoad(i + 1, 10, 0, 2, 2))
    admission.publish(QueueLoad(4, 30, 2, 0, 2))
    assert refusal(admission, 4).retry_after_s == 6  # two have left in three seconds, not in twenty-eight


def test_the_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(QueueFullError("full", "max_num_waiting", 3, 7)))
    assert (str(error), error.param, error.excess, error.retry_after_s) == ("full", "max_num_waiting", 3, 7)
