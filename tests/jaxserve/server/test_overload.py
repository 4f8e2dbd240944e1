"""Four times as many requests as the engine can serve: the excess is refused and leaves nothing behind."""

import asyncio
import time

import pytest

from jaxserve.scheduler.queue_limits import QueueLimits
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.serving.http_server import running, until
from tests.support.serving.overload import check_overloaded, overload

NUM_REQUESTS, SECONDS = 250, 2.5
NUM_SEQS, NUM_TOKENS, STEP_S = 4, 32, 0.005  # 25 requests a second


def body(i):
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if i % 2 else {}
    return {"prompt": f"{i}", "max_tokens": NUM_TOKENS, "ignore_eos": True, **streamed}


@pytest.fixture
def server():
    llm = fake_llm(max_num_seqs=NUM_SEQS, queue_limits=QueueLimits(max_num_waiting=2 * NUM_SEQS))
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(STEP_S) or collect(ticket)
    with running(llm) as server:
        yield server


def test_accepted_requests_are_served_and_others_are_refused_at_once(server, record_property):
    found = asyncio.run(overload(server.url, NUM_REQUESTS, SECONDS, body))
    check_overloaded(found, NUM_TOKENS)
    assert len(found.accepted) + len(found.refused) == NUM_REQUESTS
    assert len(found.accepted) >= 3 * NUM_SEQS
    assert len(found.refused) >= NUM_REQUESTS // 4
    record_property("refused_p99_ms", 1000 * found.refused_p99_s)
    until(lambda: server.state.num_active == 0 and all_pages_are_back(server.llm))
    meters = server.state.engine.metrics
    assert (meters.num_running, meters.num_waiting, len(meters._live)) == (0, 0, 0)
    assert meters.refused.total() == len(found.refused)
    assert meters.finished == {"length": len(found.accepted)}


def test_an_incomplete_text_is_noticed(server):
    found = asyncio.run(overload(server.url, 2, 0.1, lambda i: {**body(i), "max_tokens": 5}))
    with pytest.raises(AssertionError):
        check_overloaded(found, NUM_TOKENS)
