"""Long work runs outside the event loop, and validation stops at a list's first bad item."""

import threading

import orjson
import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.server.http import body_reader
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.requests.tokenization_bodies import DetokenizeBody, TokenizeBody
from jaxserve.server.openai.responses.completion_response import CompletionResponse
from jaxserve.server.routes import tokenization
from jaxserve.text import chat_messages
from jaxserve.text.chat_messages import checked_messages
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tool_calls.tool_schema import checked_tools
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

LONG, BRIEF = 50_000, 5


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


# Kind of work → the function that does it, the route, and a body of the given size.
WORK = {
    "parsing": (body_reader, "_parse", "/tokenize", lambda size: {"prompt": "x" * size}),
    "encoding": (Tokenizer, "encode_batch", "/tokenize", lambda size: {"prompt": "x" * size}),
    "pieces": (Tokenizer, "id_to_piece", "/tokenize", lambda size: {"prompt": "x" * size, "return_token_strs": True}),
    "decoding": (Tokenizer, "decode", "/detokenize", lambda size: {"tokens": [97] * size}),
    "checking": (tokenization, "_text", "/detokenize", lambda size: {"tokens": [97] * size}),
    "writing": (orjson, "dumps", "/detokenize", lambda size: {"tokens": [97] * size}),
    "parameters": (SamplingParams, "__post_init__", "/v1/completions", lambda size: _short(stop_token_ids=[97] * size)),
    "requests": (InputProcessor, "make", "/v1/completions", lambda size: _short(prompt=["x"] * (size // 500 + 1))),
    "answers": (CompletionResponse, "whole", "/v1/completions", lambda size: _short(n=128 if size == LONG else 1)),
}


def _short(**fields):
    return {"prompt": "x", "max_tokens": 10, "logprobs": 0, **fields}


@pytest.mark.parametrize("name", WORK)
def test_long_work_runs_in_a_thread(server, monkeypatch, name):
    owner, function, path, asked = WORK[name]
    done, threads = getattr(owner, function), set()

    def noted(*args, **kwargs):
        threads.add(threading.current_thread().name == "test-server")
        return done(*args, **kwargs)

    monkeypatch.setattr(owner, function, noted)
    server.post(path, asked(LONG))
    assert threads == {False}
    threads.clear()
    server.post(path, asked(BRIEF))
    assert threads == {name != "encoding"}  # encoding always runs in a thread: its time is not known from the size


# Messages and tools are checked when they are rendered.
LISTS = [(kind, name) for kind in (CompletionBody, ChatBody, EmbeddingBody, TokenizeBody, DetokenizeBody)
         for name, schema in kind.model_json_schema()["properties"].items()
         if "items" in str(schema) and name not in ("messages", "tools")]  # fmt: skip
BAD_LISTS = ([None] * 100, [[None] * 100] * 100, [5.5] * 100)


@pytest.mark.parametrize(("kind", "name"), LISTS)
def test_an_error_names_only_a_list_s_first_bad_item(kind, name):
    """Building a million errors would take seconds."""
    for bad in BAD_LISTS:
        with pytest.raises(ApiError, match=name) as caught:
            kind.read({name: bad})
        told = str(caught.value)
        assert "[1]" not in told
        assert told.count("[0]") <= 2


def test_an_error_names_only_the_first_bad_message():
    for bad in BAD_LISTS:
        with pytest.raises(RequestError, match=r"messages\[0\]") as caught:
            checked_messages(bad)
        assert "[1]" not in str(caught.value)


def test_an_error_names_only_the_first_bad_tool():
    for bad in BAD_LISTS:
        with pytest.raises(RequestError, match=r"tools\[0\]") as caught:
            checked_tools(bad)
        assert "[1]" not in str(caught.value)


def test_too_many_biases_are_refused_before_each_is_checked():
    body = CompletionBody.read({"prompt": "x", "logit_bias": {str(i): "bad" for i in range(301)}})
    with pytest.raises(RequestError, match="logit_bias holds 301 entries; at most 300"):
        body.sampling_params({})


def test_messages_are_checked_in_a_thread(server, monkeypatch):
    check, threads = chat_messages.check_schema, []

    def noted(*args):
        threads.append(threading.current_thread().name)
        return check(*args)

    monkeypatch.setattr(chat_messages, "check_schema", noted)
    error = server.post("/v1/chat/completions", {"messages": [None] * 5000}).json()["error"]
    assert error["message"] == "messages holds 5000 items; at most 4096 are allowed"
    assert len(threads) == 1
    assert "test-server" not in threads
