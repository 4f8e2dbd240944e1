"""What takes long is done elsewhere than in the event loop, and bad lists are not looked through to their ends."""

import asyncio
import threading
from types import SimpleNamespace

import orjson
import pytest

from jaxserve.core.sampling_params import SamplingParams
from jaxserve.server import body, tokens
from jaxserve.server.answers.completion import CompletionAnswer
from jaxserve.server.errors import ApiError
from jaxserve.server.protocol.chat import ChatBody
from jaxserve.server.protocol.completions import CompletionBody
from jaxserve.server.protocol.embeddings import EmbeddingBody
from jaxserve.server.protocol.tokens import DetokenizeBody, TokenizeBody
from jaxserve.server.work import Work
from jaxserve.text.tokenizer import Tokenizer
from tests.support.fake_llm import fake_llm
from tests.support.server import running

LONG, BRIEF = 50_000, 5


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server


# Where it is done → a request, which is as long as it is told to be.
WORK = {
    "parsing": (body, "_parse", "/tokenize", lambda size: {"prompt": "x" * size}),
    "encoding": (Tokenizer, "encode_batch", "/tokenize", lambda size: {"prompt": "x" * size}),
    "pieces": (Tokenizer, "id_to_piece", "/tokenize", lambda size: {"prompt": "x" * size, "return_token_strs": True}),
    "decoding": (Tokenizer, "decode", "/detokenize", lambda size: {"tokens": [97] * size}),
    "checking": (tokens, "_text", "/detokenize", lambda size: {"tokens": [97] * size}),
    "writing": (orjson, "dumps", "/detokenize", lambda size: {"tokens": [97] * size}),
    "parameters": (SamplingParams, "__post_init__", "/v1/completions", lambda size: _short(stop_token_ids=[97] * size)),
    "answers": (CompletionAnswer, "whole", "/v1/completions", lambda size: _short(n=128 if size == LONG else 1)),
}


def _short(**fields):
    return {"prompt": "x", "max_tokens": 10, "logprobs": 0, **fields}


@pytest.mark.parametrize("name", WORK)
def test_what_is_long_is_done_in_a_thread(server, monkeypatch, name):
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
    assert threads == {name != "encoding"}  # of a text nobody knows before how long it takes


def test_others_go_on_while_a_request_s_many_prompts_are_submitted():
    num_turns = 0

    async def submit(*_, **__):
        return SimpleNamespace(abort=lambda: None)

    async def other():
        nonlocal num_turns
        while True:
            await asyncio.sleep(0)
            num_turns += 1

    async def main():
        beside = asyncio.create_task(other())
        prompt = SimpleNamespace(as_dict=dict, cache_salt=None)
        call = SimpleNamespace(prompts=[prompt] * 1000, params=None, body=SimpleNamespace(stream=False), options={})
        await Work.begin(SimpleNamespace(llm=SimpleNamespace(submit=submit)), call)
        beside.cancel()

    asyncio.run(main())
    assert num_turns > 50


LISTS = [(kind, name) for kind in (CompletionBody, ChatBody, EmbeddingBody, TokenizeBody, DetokenizeBody)
         for name, schema in kind.model_json_schema()["properties"].items() if "items" in str(schema)]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), LISTS)
def test_of_a_list_s_bad_items_the_first_is_told(kind, name):
    """A million errors would take seconds."""
    for bad in ([None] * 100, [[None] * 100] * 100, [5.5] * 100):
        with pytest.raises(ApiError, match=name) as caught:
            kind.read({name: bad})
        told = str(caught.value)
        assert "[1]" not in told
        assert told.count("[0]") <= 2


def test_too_many_biases_are_refused_unread():
    with pytest.raises(ApiError, match="logit_bias holds 301 entries; at most 300"):
        CompletionBody.read({"prompt": "x", "logit_bias": {str(i): "bad" for i in range(301)}})
