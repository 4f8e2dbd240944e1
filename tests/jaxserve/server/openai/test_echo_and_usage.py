"""Echoed prompts keep every token, and usage in chunks counts up choice by choice, as vLLM's clients expect."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import running

SAID = "naïve 😀"
END = "<|end|>"
MESSAGES = [{"role": "user", "content": "x"}]
BODIES = {"/v1/completions": {"prompt": ["a", "b"]}, "/v1/chat/completions": {"messages": MESSAGES}}


@pytest.fixture(scope="module")
def server():
    with running(fake_llm(Reciter(264, said=SAID))) as server:
        yield server


def chunks(server: Any, path: str, **body: Any) -> list[dict[str, Any]]:
    events = server.post(path, {**BODIES[path], "stream": True, "max_tokens": 6, **body}).text.split("data: ")[1:-1]
    return [json.loads(event) for event in events]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize(
    ("prompt", "text"),
    [([104, 261, 105], f"h{END}i"), (f"h{END}i", f"h{END}i"), ([261, 0xC3, 104], f"{END}\ufffdh"), ("né", "né")],
)
def test_offsets_of_echoed_tokens_are_where_their_text_starts(server, prompt, text, max_tokens, skip):
    """Special tokens of the prompt are echoed, though outputs leave them out."""
    asked = {"prompt": prompt, "max_tokens": max_tokens, "echo": True, "logprobs": 1, "skip_special_tokens": skip}
    (choice,) = server.post("/v1/completions", asked).json()["choices"]
    assert choice["text"].startswith(text)
    logprobs = choice["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if token == END:
            assert choice["text"][offset:].startswith(END)
    num_prompt = len(logprobs["tokens"]) - max_tokens
    assert (logprobs["text_offset"][num_prompt:] or [len(text)])[0] == len(text)
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])


@pytest.mark.parametrize("path", BODIES)
def test_continuous_usage_counts_the_tokens_of_one_choice(server, path):
    """From 0 in the chunk of a role, strictly up within a choice; the last chunk counts the whole request."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    *found, last = chunks(server, path, n=2, stream_options=options)
    counts: dict[int, list[int]] = {}
    for chunk in found:
        (choice,), usage = chunk["choices"], chunk["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] == (1 if path == "/v1/completions" else last["usage"]["prompt_tokens"])
        counts.setdefault(choice["index"], []).append(usage["completion_tokens"])
    assert len(counts) == (4 if path == "/v1/completions" else 2)
    for numbers in counts.values():
        assert all(low < high for low, high in pairwise(numbers))
        assert (numbers[0] == 0) == (path != "/v1/completions")
        assert numbers[-1] == 6
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6 * len(counts)


@pytest.mark.parametrize("path", BODIES)
def test_continuous_usage_needs_include_usage(server, path):
    found = chunks(server, path, stream_options={"continuous_usage_stats": True})
    assert all("usage" not in chunk for chunk in found)


@pytest.mark.parametrize("path", BODIES)
def test_usage_forced_by_the_server_is_in_every_chunk(path):
    with running(fake_llm(), enable_force_include_usage=True) as server:
        for options in (None, {}, {"include_usage": False}):
            *found, last = chunks(server, path, stream_options=options)
            assert all(chunk["usage"]["prompt_tokens"] > 0 for chunk in found)
            assert last["choices"] == []


@pytest.mark.parametrize(("asked", "is_id"), [({}, True), ({"return_tokens_as_token_ids": False}, False)])
def test_the_server_s_option_writes_tokens_as_ids_unless_a_request_says_otherwise(asked, is_id):
    with running(fake_llm(), return_tokens_as_token_ids=True) as server:
        body = {"prompt": "a", "max_tokens": 2, "logprobs": 0, **asked}
        (choice,) = server.post("/v1/completions", body).json()["choices"]
        assert {token.startswith("token_id:") for token in choice["logprobs"]["tokens"]} == {is_id}
        chat = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "logprobs": True, **asked})
        content = chat.json()["choices"][0]["logprobs"]["content"]
        assert {entry["token"].startswith("token_id:") for entry in content} == {is_id}
