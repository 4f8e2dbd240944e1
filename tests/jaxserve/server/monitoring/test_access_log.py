"""A request's log line has its counts and times, and none of its text."""

import asyncio
import json
import logging

from jaxserve import AsyncLLM, SamplingParams
from jaxserve.server.monitoring.access_log import AccessRecord, log_access
from jaxserve.server.server_config import ServerConfig
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import NAME, running

SECRET = "the answer is a secret. "


def lines(caplog):
    return [json.loads(record.message) for record in caplog.records if record.name == "jaxserve.requests"]


def test_parts_and_whole_outputs_of_several_prompts_add_up(caplog):
    caplog.set_level(logging.INFO)
    params = SamplingParams(max_tokens=9, n=2, ignore_eos=True)

    async def main():
        served = AccessRecord("abc", "/v1/completions", "tiny")
        async with AsyncLLM.from_llm(fake_llm(Reciter(264, said=SECRET), prefix_eviction="lru")) as llm:
            served.note(await llm.generate("my secret", params))
            async for piece in llm.stream("my secret", params):
                served.note(piece)
        log_access(ServerConfig(log_requests=True), served, 200)

    asyncio.run(main())
    (line,) = lines(caplog)
    times = [line.pop(name) for name in ("queue_ms", "ttft_ms", "total_ms")]
    assert all(0 <= time <= times[-1] for time in times)
    assert line.pop("cached_tokens") > 0
    assert line == {
        "request_id": "abc",
        "route": "/v1/completions",
        "model": "tiny",
        "status": 200,
        "prompt_tokens": 18,
        "output_tokens": 36,
        "finish_reasons": {"length": 4},
    }
    assert "secret" not in caplog.text


def test_a_refused_request_is_logged_and_nothing_is_logged_by_default(caplog):
    caplog.set_level(logging.INFO)
    log_access(ServerConfig(), AccessRecord("a", "/v1/completions"), 200)
    log_access(ServerConfig(log_requests=True), AccessRecord("b", "/v1/completions"), 429)
    (line,) = lines(caplog)
    assert (line["request_id"], line["status"], line["model"], line["ttft_ms"]) == ("b", 429, None, None)


def test_every_post_is_logged_without_its_text(caplog):
    caplog.set_level("INFO", "jaxserve.requests")
    with running(fake_llm(), log_requests=True) as server:
        headers = {"X-Request-Id": "mine"}
        server.post("/v1/completions", {"prompt": ["secret", "words"], "max_tokens": 3, "n": 2}, headers=headers)
        server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "secret"}], "stream": True})
        server.post("/v1/completions", {"prompt": "secret", "max_tokens": "secret"})
        server.get("/health")
    whole, streamed, refused = lines(caplog)
    assert (whole["request_id"], whole["route"], whole["status"]) == ("mine", "/v1/completions", 200)
    assert (whole["prompt_tokens"], whole["output_tokens"], whole["finish_reasons"]) == (11, 12, {"length": 4})
    assert streamed["output_tokens"] == 96 - streamed["prompt_tokens"]
    assert 0 <= streamed["queue_ms"] <= streamed["ttft_ms"] <= streamed["total_ms"]
    assert (refused["status"], refused["output_tokens"]) == (400, 0)
    assert "secret" not in caplog.text


def test_the_line_of_embeddings_has_model_tokens_and_queue_time(caplog):
    caplog.set_level("INFO", "jaxserve.requests")
    with running(fake_llm(), log_requests=True) as server:
        server.post("/v1/embeddings", {"input": ["secret", "word"]})
        server.post("/v1/embeddings", {"input": "secret" * 100})
    whole, refused = lines(caplog)
    assert (whole["model"], whole["prompt_tokens"], whole["output_tokens"]) == (NAME, 10, 0)
    assert 0 <= whole["queue_ms"] <= whole["total_ms"]
    assert (refused["model"], refused["status"], refused["prompt_tokens"]) == (NAME, 400, 0)


def test_a_body_s_id_takes_precedence_over_the_header_s(caplog):
    caplog.set_level("INFO", "jaxserve.requests")
    headers = {"X-Request-Id": "theirs"}
    with running(fake_llm(), log_requests=True) as server:
        for own in ("mine", None):
            body = {"prompt": "x", "max_tokens": 1, "request_id": own}
            answer = server.post("/v1/completions", body, headers=headers)
            expected = own or "theirs"
            assert (answer.json()["id"], answer.headers["x-request-id"]) == (f"cmpl-{expected}", expected)
        refused = server.post("/v1/completions", {"prompt": "x" * 200, "request_id": "long"}, headers=headers)
    assert [line["request_id"] for line in lines(caplog)] == ["mine", "theirs", refused.headers["x-request-id"]]
    assert refused.headers["x-request-id"] == "long"
