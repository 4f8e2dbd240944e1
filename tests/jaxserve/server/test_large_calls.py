"""Requests with as many texts as a body may have, over HTTP with the limits of `jaxserve serve`."""

import base64
import threading

import httpx2
import numpy as np
import pytest

from jaxserve.cli.serve import MAX_NUM_WAITING
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.server.openai.requests.text_inputs import MAX_TEXTS
from tests.support.fakes.async_llm import held
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.serving.http_server import running, until

TEXTS = [f"text {i}" for i in range(MAX_TEXTS)]
BRIEF = {"max_tokens": 1, "ignore_eos": True}


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(queue_limits=QueueLimits(max_num_waiting=MAX_NUM_WAITING))) as server:
        yield server


def texts_of(server, **body):
    answer = server.post("/v1/completions", {**BRIEF, **body})
    assert answer.status_code == 200, answer.text[:300]
    return answer


def test_completions(server):
    """As many as separate requests would give, whole and streamed."""
    whole = texts_of(server, prompt=TEXTS, seed=1).json()
    assert whole["usage"]["completion_tokens"] == MAX_TEXTS
    assert [choice["index"] for choice in whole["choices"]] == list(range(MAX_TEXTS))
    events = texts_of(server, prompt=TEXTS, seed=1, stream=True).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    streamed = [""] * MAX_TEXTS
    for event in events[:-2]:
        for choice in httpx2.Response(200, text=event.removeprefix("data: ")).json()["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == [choice["text"] for choice in whole["choices"]]
    for index in (0, 600, 1023):
        assert texts_of(server, prompt=TEXTS[index], seed=1).json()["choices"][0]["text"] == streamed[index]


def test_embeddings(server):
    data = server.post("/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"}).json()["data"]
    alone = server.post("/v1/embeddings", {"input": TEXTS[700]}).json()["data"][0]["embedding"]
    assert len(data) == MAX_TEXTS
    assert np.array_equal(np.frombuffer(base64.b64decode(data[700]["embedding"]), "<f4"), np.float32(alone))


def test_several_samples_of_each_prompt(server):
    found = texts_of(server, prompt=TEXTS[:300], n=4).json()["choices"]
    assert [choice["index"] for choice in found] == list(range(1200))


def test_others_are_served_meanwhile_and_a_disconnect_aborts_all():
    """One slot, room for one more: a call of 1,024 prompts leaves room for others once its first one runs."""
    llm = fake_llm(max_num_seqs=1, queue_limits=QueueLimits(max_num_waiting=2))
    with running(llm) as server:
        meters = server.state.engine.metrics
        with server.http() as client, held(llm) as is_waiting:
            body = {"prompt": TEXTS, "max_tokens": 80, "ignore_eos": True, "stream": True}
            with client.stream("POST", "/v1/completions", json=body):
                assert is_waiting.wait(15)
                assert meters.num_waiting >= MAX_TEXTS - 1
                statuses = []
                asked = threading.Thread(
                    target=lambda: statuses.append(server.post("/v1/completions", {"prompt": "x", **BRIEF}).status_code)
                )
                asked.start()
                until(lambda: meters.num_coming == 1)
        asked.join()
        assert statuses == [200]
        until(lambda: all_pages_are_back(llm) and server.state.num_active == 0)
        assert meters.num_waiting == 0
        assert meters.finished["abort"] > MAX_TEXTS - 5
