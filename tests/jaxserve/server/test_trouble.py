"""Clients that leave, queues that are full, failures of one and of all: nothing leaks, and everyone is told."""

import asyncio
import random
import threading
import time
from dataclasses import dataclass

import httpx2
import pytest

from jaxserve.runner.fake_model import FakeModel
from jaxserve.scheduler.bounds import QueueBounds
from jaxserve.server.service import State
from tests.support.fake_llm import all_pages_are_back, fake_llm
from tests.support.server import running, until

LONG = {"prompt": "x", "max_tokens": 90, "ignore_eos": True}


def is_quiet(server):
    return all_pages_are_back(server.llm) and server.service.num_active == 0


def slowed(llm, seconds):
    """Each step takes that long."""
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(seconds) or collect(ticket)
    return llm


def test_two_hundred_clients_leave_at_any_moment_and_the_next_one_is_answered():
    """Some leave while they wait in the queue, some while they run, some before their body has come."""
    llm = slowed(fake_llm(), 0.002)

    async def leave(client, rng):
        is_streamed = rng.random() < 0.5
        asked = client.stream("POST", "/v1/completions", json={**LONG, "stream": is_streamed, "n": rng.randint(1, 3)})
        try:
            async with asyncio.timeout(rng.random() * 0.5), asked as answer:
                async for _ in answer.aiter_bytes():
                    pass
        except TimeoutError:
            return True
        return False

    async def all_leave(url):
        rng = random.Random(0)
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=url, timeout=30, limits=limits) as client:
            return await asyncio.gather(*(leave(client, rng) for _ in range(200)))

    with running(llm) as server:
        left = asyncio.run(all_leave(server.url))
        assert sum(left) > 100
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 3}).status_code == 200
        until(lambda: is_quiet(server))
        assert server.service.llm.meters.num_running == server.service.llm.meters.num_waiting == 0


def test_what_comes_over_the_bound_is_refused_before_headers_and_what_is_accepted_ends():
    llm = slowed(fake_llm(max_num_seqs=2, bounds=QueueBounds(max_num_waiting=4)), 0.002)
    answers = []

    def ask(is_streamed):
        answers.append(server.post("/v1/completions", {**LONG, "stream": is_streamed}))

    with running(llm) as server:
        threads = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: is_quiet(server))
    good = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(good) + len(refused) == 40
    assert len(good) >= 6
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}
    assert all(answer.text.endswith("data: [DONE]\n\n") or answer.json()["choices"] for answer in good)


def test_several_prompts_are_refused_whole():
    llm = slowed(fake_llm(max_num_seqs=2, bounds=QueueBounds(max_num_waiting=2)), 0.002)
    with running(llm) as server:
        answer = server.post("/v1/completions", {**LONG, "prompt": ["a"] * 30})
        assert answer.status_code == 429
        until(lambda: is_quiet(server))


def test_numbers_that_are_not_finite_end_one_request():
    with running(fake_llm(FakeModel(264, bad_chance=0.2))) as server:
        answers = [server.post("/v1/completions", {"prompt": f"{i}", "max_tokens": 4}) for i in range(30)]
        streams = [
            server.post("/v1/completions", {"prompt": f"{i}", "max_tokens": 4, "stream": True}) for i in range(30)
        ]
        until(lambda: is_quiet(server))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 500}
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 500} == {"not_finite"}
    assert {answer.status_code for answer in streams} == {200}
    failed = ['"error"' in answer.text for answer in streams]
    assert True in failed
    assert False in failed
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in streams)


def test_a_request_s_deadline_is_kept_before_and_after_its_first_token():
    with running(slowed(fake_llm(max_num_seqs=1), 0.01)) as server:
        slow = threading.Thread(target=server.post, args=("/v1/completions", LONG))
        slow.start()
        until(lambda: server.service.num_active == 1)
        waiting = server.post("/v1/completions", {**LONG, "deadline_s": 0.05})
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "timeout")
        slow.join()
        cut = server.post("/v1/completions", {**LONG, "deadline_s": 0.2}).json()["choices"][0]
        assert cut["finish_reason"] == "timeout"
        until(lambda: is_quiet(server))


def test_the_server_s_own_limit_holds_for_requests_without_one():
    with running(slowed(fake_llm(), 0.01), request_timeout_s=0.2) as server:
        assert server.post("/v1/completions", LONG).json()["choices"][0]["finish_reason"] == "timeout"
        assert server.post("/v1/completions", {**LONG, "deadline_s": 1}).status_code == 400


def test_health_follows_the_server_s_life():
    llm = fake_llm()
    gate = threading.Event()
    gate.set()
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: gate.wait(30) and collect(ticket)
    with running(llm, stall_timeout_s=0.2) as server:
        assert server.get("/health").status_code == 200
        gate.clear()
        asked = threading.Thread(target=server.post, args=("/v1/completions", {"prompt": "x", "max_tokens": 3}))
        asked.start()
        until(lambda: server.get("/health").status_code == 503)
        assert "no step has ended" in server.get("/health").json()["error"]["message"]
        gate.set()
        asked.join()
        until(lambda: server.get("/health").status_code == 200)
        for state in (State.STARTING, State.DRAINING, State.DEAD):
            server.service.state = state
            assert server.get("/health").status_code == 503
            refused = server.post("/v1/completions", {"prompt": "x"})
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)


@dataclass
class Broken:
    """A runner's `collect` that fails once it is told to."""

    collect: object
    is_broken: bool = False

    def __call__(self, ticket):
        if self.is_broken:
            raise RuntimeError("the device at /dev/accel0 has gone")
        return self.collect(ticket)


def test_the_engine_s_death_is_told_to_all_and_seen_by_health():
    llm = fake_llm()
    broken = llm.parts.runner.collect = Broken(llm.parts.runner.collect)
    with running(llm) as server:
        assert server.post("/v1/completions", {"prompt": "x"}).status_code == 200
        broken.is_broken = True
        answer = server.post("/v1/completions", {"prompt": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_dead")
        assert "accel0" not in answer.text
        assert server.get("/health").status_code == 503
        assert server.post("/v1/completions", {"prompt": "x"}).status_code == 503


@pytest.mark.parametrize("route", ["/v1/completions", "/tokenize"])
def test_a_long_prompt_does_not_stop_the_event_loop(route):
    """Half a megabyte of text, which is refused, or turned into tokens: others are answered meanwhile."""
    text = "hello world " * 40_000
    with running(fake_llm()) as server:
        body = {"prompt": text, "truncate_prompt_tokens": 8} if route == "/v1/completions" else {"prompt": text}
        assert server.post(route, body).status_code == 200
