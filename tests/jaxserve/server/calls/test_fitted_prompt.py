"""Of a conversation that is too long the oldest turns are left out, and no more of them than needed."""

import asyncio
import random

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.server.calls.fitted_prompt import fitted_prompt
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import NAME, running

TOO_LONG = "This model's maximum context length is 50 tokens"


def turn(rng):
    yield {"role": "user", "content": "u" * rng.randint(1, 9)}
    for role in rng.choice((["assistant"], ["assistant", "tool", "assistant"], [])):
        yield {"role": role, "content": "a" * rng.randint(1, 9)}


def fitted(messages, num_tokens, longest=50):
    """The messages of the prompt, whose tokens are their texts' letters, and the number of renderings."""
    seen = []

    async def render(given):
        seen.append(given)
        text = "".join(message["content"] for message in given)
        if len(text) > longest:
            raise RequestError(TOO_LONG, "messages")
        return Prompt(text, [*text.encode()])

    prompt = asyncio.run(fitted_prompt(render, messages, num_tokens))
    return next(each for each in seen[::-1] if "".join(m["content"] for m in each) == prompt.text), len(seen)


@pytest.mark.parametrize("seed", range(30))
def test_the_longest_end_that_begins_with_a_turn_is_kept(seed):
    rng = random.Random(seed)
    heads = [{"role": "system", "content": "s" * 5}] * rng.randint(0, 2)
    turns = [list(turn(rng)) for _ in range(rng.randint(1, 12))]
    num_tokens = rng.randint(30, 45)
    ends = [[*heads, *(message for each in turns[i:] for message in each)] for i in range(len(turns))]
    sizes = [sum(len(message["content"]) for message in end) for end in ends]
    expected = next((end for end, size in zip(ends, sizes, strict=True) if size <= num_tokens), ends[-1])
    kept, num_renderings = fitted(ends[0], num_tokens)
    assert kept == expected
    assert num_renderings <= 6


def test_the_last_turn_is_refused_where_it_is_too_long_alone():
    with pytest.raises(RequestError, match="maximum context length"):
        fitted([{"role": "user", "content": "a"}, {"role": "user", "content": "b" * 60}], 40)


def test_other_errors_are_raised():
    async def render(_):
        raise RequestError("the template failed", "messages")

    with pytest.raises(RequestError, match="the template failed"):
        asyncio.run(fitted_prompt(render, [{"role": "user", "content": "a"}] * 2, 5))


def test_a_response_leaves_out_turns_only_if_asked():
    items = [{"role": "user", "content": f"{i}" * 20} for i in range(9)]
    with running(fake_llm()) as server:
        body = {"model": NAME, "input": items, "max_output_tokens": 9}
        refused = server.post("/v1/responses", body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        found = server.post("/v1/responses", {**body, "truncation": "auto"}).json()
        alone = server.post("/v1/responses", {**body, "input": items[-2:]}).json()
        assert found["usage"]["input_tokens"] == alone["usage"]["input_tokens"]
        assert (found["truncation"], found["status"]) == ("auto", "incomplete")
