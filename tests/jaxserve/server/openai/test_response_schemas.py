"""Every variant of a response is one that OpenAI's clients, and this server's own description, allow."""

from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from tests.jaxserve.server.test_failures import LONG, slowed
from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import running
from tests.support.serving.response_schemas import (
    check_embeddings,
    check_error,
    check_models,
    check_stream,
    check_whole,
)

MESSAGES = [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "so"}]
PROMPTS: list[Any] = ["hé", [104, 261, 0xC3], ["a", "bb"]]


def options(**choices: tuple[Any, ...]) -> list[dict[str, Any]]:
    """All combinations of the choices; None leaves a field out."""
    return [
        {name: value for name, value in zip(choices, values, strict=True) if value is not None}
        for values in product(*choices.values())
    ]


COMPLETIONS = options(
    prompt=tuple(PROMPTS),
    echo=(None, True),
    logprobs=(None, 0, 2),
    n=(None, 2),
    return_token_ids=(None, True),
    prompt_logprobs=(None, 1),
)
CHATS = options(
    logprobs=(None, True),
    top_logprobs=(None, 2),
    n=(None, 2),
    return_token_ids=(None, True),
    prompt_logprobs=(None, 1),
    continue_final_message=(None, True),
    echo=(None, True),
)
USAGES = [None, {}, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]


def bodies() -> list[tuple[str, dict[str, Any]]]:
    found = [("/v1/completions", {"max_tokens": 3, **each}) for each in COMPLETIONS]
    found += [("/v1/completions", {**each, "max_tokens": 0}) for each in COMPLETIONS if each.get("echo")]
    chats = [each for each in CHATS if "logprobs" in each or "top_logprobs" not in each]
    return found + [("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3, **each}) for each in chats]


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(Reciter(264, said="naïve 😀"))) as server:
        yield server


def test_whole_responses(server):
    with server.http() as client:
        for path, body in bodies():
            answer = client.post(path, json=body)
            assert answer.status_code == 200, (body, answer.text)
            check_whole(path, body, answer.text)


def test_streams(server):
    with server.http() as client:
        for number, (path, body) in enumerate(bodies()):
            if "prompt_logprobs" in body:
                continue
            usage = USAGES[number % len(USAGES)]
            asked = {**body, "stream": True, **({} if usage is None else {"stream_options": usage})}
            answer = client.post(path, json=asked)
            assert answer.status_code == 200, (body, answer.text)
            check_stream(path, asked, answer.text)


def test_a_deadline_ends_a_choice_by_length_and_is_its_stop_reason():
    with running(slowed(fake_llm(max_num_seqs=1), 0.01)) as server:
        body = {**LONG, "deadline_s": 0.2}
        (cut,) = check_whole("/v1/completions", body, server.post("/v1/completions", body).text)["choices"]
        assert (cut["finish_reason"], cut["stop_reason"]) == ("length", "timeout")
        chat = {**body, "messages": MESSAGES[:1], "stream": True}
        del chat["prompt"]
        chunks = check_stream("/v1/chat/completions", chat, server.post("/v1/chat/completions", chat).text)
        (end,) = chunks[-1]["choices"]
        assert (end["finish_reason"], end["stop_reason"]) == ("length", "timeout")


ERRORS: list[tuple[str, Any, int, str | None]] = [
    ("/v1/completions", {}, 400, None),
    ("/v1/completions", {"prompt": "a", "x": 1}, 400, "unknown_field"),
    ("/v1/completions", {"prompt": "a" * 200}, 400, "context_length_exceeded"),
    ("/v1/chat/completions", {"messages": MESSAGES, "model": "other"}, 404, "model_not_found"),
    ("/nowhere", {}, 404, None),
    ("/health", {}, 405, None),
]


@pytest.mark.parametrize(("path", "body", "status", "code"), ERRORS)
def test_errors(server, path, body, status, code):
    answer = server.post(path, body)
    assert answer.status_code == status
    assert check_error(answer.text)["code"] == code


def test_lists_of_embeddings_and_of_models(server):
    for encoding in ("float", "base64"):
        check_embeddings(server.post("/v1/embeddings", {"input": ["a", "b"], "encoding_format": encoding}).text)
    check_models(server.get("/v1/models").text)


PLANTED = [('"refusal":null', '"refused":null'), ('"finish_reason":"length"', '"finish_reason":"timeout"')]


@pytest.mark.parametrize(("good", "bad"), PLANTED)
def test_a_response_with_a_fault_is_found(server, good, bad):
    body = {"messages": MESSAGES[:1], "max_tokens": 1, "logprobs": True}
    text = server.post("/v1/chat/completions", body).text
    assert good in text
    with pytest.raises(ValidationError):
        check_whole("/v1/chat/completions", body, text.replace(good, bad))
