"""Disconnects, full queues, failures of a request or the engine: nothing leaks, and every client gets a response."""

import asyncio
import gc
import json
import logging
import random
import threading
import time
from dataclasses import dataclass

import httpx2
import openai
import pytest

from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.server.server_state import ServerStatus
from jaxserve.text.tokenizer import Tokenizer
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.serving.http_server import NAME, running, until

LONG = {"prompt": "x", "max_tokens": 90, "ignore_eos": True}


def is_quiet(server):
    return all_pages_are_back(server.llm) and server.state.num_active == 0


def slowed(llm, seconds):
    """Each step takes `seconds` longer."""
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(seconds) or collect(ticket)
    return llm


def test_two_hundred_clients_disconnect_at_any_time_and_the_next_one_is_answered():
    """Some disconnect while queued, some while running, some before their body has arrived."""
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
        assert server.state.engine.metrics.num_running == server.state.engine.metrics.num_waiting == 0


def test_requests_over_the_limit_are_refused_before_headers_and_accepted_ones_finish():
    llm = slowed(fake_llm(max_num_seqs=2, queue_limits=QueueLimits(max_num_waiting=4)), 0.002)
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
    assert all(int(answer.headers["retry-after"]) >= 1 and "x-should-retry" not in answer.headers for answer in refused)
    assert {answer.json()["error"]["code"] for answer in refused} == {"queue_full"}
    assert all(answer.text.endswith("data: [DONE]\n\n") or answer.json()["choices"] for answer in good)


def test_non_finite_numbers_end_one_request():
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


def test_bad_words_that_leave_no_token_are_an_error_of_the_client():
    """Known before the text is begun where they ban all that is allowed, and else where it cannot go on."""
    with running(fake_llm()) as server:
        for words in (["a"], ["aa"]):
            asked = {"prompt": "x", "allowed_token_ids": [97], "bad_words": words}
            answer = server.post("/v1/completions", asked)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "allowed_token_ids")
            assert "bad_words" in error["message"]
            streamed = server.post("/v1/completions", {**asked, "stream": True})
            assert "bad_words" in streamed.text
        until(lambda: is_quiet(server))


def test_a_request_s_deadline_holds_before_and_after_its_first_token():
    with running(slowed(fake_llm(max_num_seqs=1), 0.01)) as server:
        slow = threading.Thread(target=server.post, args=("/v1/completions", LONG))
        slow.start()
        until(lambda: server.state.num_active == 1)
        waiting = server.post("/v1/completions", {**LONG, "deadline_s": 0.05})
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "timeout")
        assert "retry-after" not in waiting.headers
        slow.join()
        cut = server.post("/v1/completions", {**LONG, "deadline_s": 0.2}).json()["choices"][0]
        assert (cut["finish_reason"], cut["stop_reason"]) == ("length", "timeout")
        until(lambda: is_quiet(server))


def test_openai_s_client_does_not_repeat_a_request_whose_time_is_up():
    """Its own limit has passed, which the client would spend three times by default."""
    with running(slowed(fake_llm(max_num_seqs=1), 0.005)) as server:
        slow = threading.Thread(target=server.post, args=("/v1/completions", LONG))
        slow.start()
        until(lambda: server.state.num_active == 1)
        client = server.openai().with_options(max_retries=2)
        for limit in ("deadline_s", "queue_timeout_s"):
            with pytest.raises(openai.InternalServerError, match="timed out before its first token"):
                client.completions.create(model=NAME, prompt="x", extra_body={limit: 0.02})
        slow.join()
        expected = [(("POST", "/v1/completions", 200), 1), (("POST", "/v1/completions", 503), 2)]
        until(lambda: sorted(server.state.http_counts.items()) == expected)  # counted once an answer has left


def test_the_server_s_limit_holds_for_requests_without_a_deadline():
    with running(slowed(fake_llm(), 0.01), request_timeout_s=0.2) as server:
        assert server.post("/v1/completions", LONG).json()["choices"][0]["stop_reason"] == "timeout"
        assert server.post("/v1/completions", {**LONG, "deadline_s": 1}).status_code == 400


def test_health_follows_the_server_s_status():
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
        assert "no step has finished" in server.get("/health").json()["error"]["message"]
        gate.set()
        asked.join()
        until(lambda: server.get("/health").status_code == 200)
        for state in (ServerStatus.STARTING, ServerStatus.DRAINING, ServerStatus.DEAD):
            server.state.status = state
            assert server.get("/health").status_code == 503
            refused = server.post("/v1/completions", {"prompt": "x"})
            assert (refused.status_code, "retry-after" in refused.headers) == (503, True)


@dataclass
class Broken:
    """A runner's `collect` that fails on demand."""

    collect: object
    is_broken: bool = False

    def __call__(self, ticket):
        if self.is_broken:
            raise RuntimeError("the device at /dev/accel0 has gone")
        return self.collect(ticket)


def test_the_engine_s_death_is_reported_to_all_requests_and_by_health():
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
    """Half a megabyte of text, refused or encoded: other requests are answered meanwhile."""
    text = "hello world " * 40_000
    with running(fake_llm()) as server:
        body = {"prompt": text, "truncate_prompt_tokens": 8} if route == "/v1/completions" else {"prompt": text}
        assert server.post(route, body).status_code == 200


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_prompt_that_is_late_ends_alone(is_streamed):
    """One slot: the second prompt's queue timeout expires before the first one has finished."""
    asked = {"prompt": ["x", "y"], "max_tokens": 40, "ignore_eos": True, "queue_timeout_s": 0.3, "stream": is_streamed}
    with running(slowed(fake_llm(max_num_seqs=1), 0.02)) as server:
        if is_streamed:
            events = server.post("/v1/completions", asked).text.split("data: ")[1:-1]
            choices = [choice for event in events for choice in json.loads(event)["choices"]]
            reasons = {c["index"]: c["stop_reason"] for c in choices if c["finish_reason"]}
        else:
            choices = server.post("/v1/completions", asked).json()["choices"]
            reasons = {choice["index"]: choice["stop_reason"] for choice in choices}
        assert reasons == {0: None, 1: "timeout"}
        until(lambda: is_quiet(server))
        with server.http() as client, client.stream("POST", "/v1/completions", json={**LONG, "stream": True}):
            late = server.post("/v1/completions", {**asked, "stream": False})
            assert (late.status_code, late.json()["error"]["code"]) == (503, "timeout")


def test_a_disconnect_before_the_response_is_counted_as_499(caplog):
    """The status that proxies use; nothing of the request remains, and nothing is logged as an error."""
    caplog.set_level(logging.WARNING)
    with running(slowed(fake_llm(max_num_seqs=1), 0.01), log_requests=True) as server:
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{server.url}/v1/completions", json=LONG, timeout=0.2)
        until(lambda: is_quiet(server))
        counts = {
            status: count for (_, route, status), count in server.state.http_counts.items() if "completions" in route
        }
    assert counts == {499: 1}
    gc.collect()
    assert not caplog.records


def test_a_server_s_maximum_deadline_holds_for_embeddings_too():
    with running(slowed(fake_llm(max_num_seqs=1), 0.02), request_timeout_s=1.0) as server:
        assert server.post("/v1/embeddings", {"input": "x"}).status_code == 200
        late = server.post("/v1/embeddings", {"input": ["x" * 90] * 60})
        assert (late.status_code, late.json()["error"]["code"]) == (503, "timeout")
        until(lambda: is_quiet(server))


def test_time_counts_from_arrival_and_a_full_queue_refuses_before_prompts_are_read(monkeypatch):
    encode = Tokenizer.encode_batch
    with running(slowed(fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=0)), 0.01)) as server:
        with monkeypatch.context() as patched:
            patched.setattr(Tokenizer, "encode_batch", lambda *a, **k: time.sleep(0.3) or encode(*a, **k))
            late = server.post("/v1/completions", {"prompt": "x", "deadline_s": 0.2})
            assert (late.status_code, late.json()["error"]["code"]) == (503, "timeout")
        with server.http() as client, client.stream("POST", "/v1/completions", json={**LONG, "stream": True}):
            until(lambda: server.state.engine.metrics.num_running == 1)
            monkeypatch.setattr(Tokenizer, "encode_batch", None)  # any call fails
            for path, body in (
                ("completions", {"prompt": "x"}),
                ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                ("embeddings", {"input": "x"}),
            ):
                assert server.post(f"/v1/{path}", body).status_code == 429, path


def test_a_chat_that_cannot_fit_is_refused_before_it_is_encoded(monkeypatch):
    with running(fake_llm()) as server:
        asked = {"messages": [{"role": "user", "content": "x" * 100_000}], "max_tokens": 1}
        assert server.post("/v1/chat/completions", {**asked, "truncate_prompt_tokens": 9}).status_code == 200
        monkeypatch.setattr(Tokenizer, "encode_batch", None)  # any call fails
        refused = server.post("/v1/chat/completions", asked)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
