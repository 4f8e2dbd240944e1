"""A full queue refuses a call at once and as a whole, naming the limit; a refused call leaves no trace."""

import pytest

from jaxserve.core.errors import ConfigError, QueueFullError, RequestError
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad
from tests.support.fakes.fake_engine import Driver, make_request, make_scheduler


def requests(count, prompt=4, n=1, *, start=0):
    return [make_request(str(i), prompt, 8, n=n) for i in range(start, start + count)]


def admit(scheduler, request):
    scheduler.check([request])
    return scheduler.add(request)


def facts(scheduler):
    return QueueLoad.of(scheduler.state).num_waiting, len(scheduler.state.requests), len(scheduler.state.waiting)


def test_the_limit_counts_samples_beyond_those_with_a_free_slot():
    scheduler = make_scheduler(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=3))
    for request in requests(5):
        admit(scheduler, request)
    before = facts(scheduler)
    with pytest.raises(QueueFullError, match="try again") as caught:
        admit(scheduler, requests(1, start=5)[0])
    assert caught.value.param == "max_num_waiting"
    assert facts(scheduler) == before
    Driver(scheduler).steps(1)  # two of them have slots now: three wait, which is the limit
    with pytest.raises(QueueFullError):
        admit(scheduler, requests(1, start=5)[0])
    scheduler.abort("0")
    scheduler.abort("4")
    admit(scheduler, requests(1, start=5)[0])


def test_the_token_limit_counts_waiting_tokens():
    scheduler = make_scheduler(max_num_seqs=1, queue_limits=QueueLimits(max_waiting_tokens=70))
    for request in requests(2, prompt=30):
        admit(scheduler, request)
    with pytest.raises(QueueFullError, match="60 tokens wait") as caught:
        admit(scheduler, requests(1, prompt=11, start=2)[0])
    assert caught.value.param == "max_waiting_tokens"
    admit(scheduler, requests(1, prompt=10, start=2)[0])
    Driver(scheduler).steps(1)
    admit(scheduler, requests(1, prompt=30, start=3)[0])


@pytest.mark.parametrize("queue_limits", [QueueLimits(max_num_waiting=3), QueueLimits(max_waiting_tokens=64)])
def test_a_batch_is_taken_or_refused_whole(queue_limits):
    scheduler = make_scheduler(max_num_seqs=2, queue_limits=queue_limits)
    admit(scheduler, requests(1, prompt=20)[0])
    before = facts(scheduler)
    with pytest.raises(QueueFullError):
        scheduler.check(requests(5, prompt=12, start=1))
    with pytest.raises(QueueFullError):
        admit(scheduler, requests(1, prompt=12, n=5, start=1)[0])
    assert facts(scheduler) == before
    scheduler.check(requests(3, prompt=12, start=1))


@pytest.mark.parametrize("queue_limits", [QueueLimits(max_num_waiting=0), QueueLimits(max_waiting_tokens=64)])
def test_a_call_larger_than_an_empty_queue_is_not_to_be_retried(queue_limits):
    scheduler = make_scheduler(max_num_seqs=2, queue_limits=queue_limits)
    with pytest.raises(RequestError, match="at once") as caught:
        admit(scheduler, make_request("a", 30, n=3))
    assert not isinstance(caught.value, QueueFullError)
    assert not scheduler.has_work


def test_a_token_limit_below_the_longest_prompt_is_refused():
    with pytest.raises(ConfigError, match="max_model_len=64") as caught:
        make_scheduler(queue_limits=QueueLimits(max_waiting_tokens=63))
    assert caught.value.param == "max_waiting_tokens"


def test_without_limits_thousands_wait():
    scheduler = make_scheduler()
    scheduler.check(requests(5000, n=2))
