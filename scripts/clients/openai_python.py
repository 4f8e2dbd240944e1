"""OpenAI's Python client, which validates each answer against its own types."""

import asyncio
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk

from scripts.clients.checks import MODEL, Checks, largest_difference, main

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": [{"type": "text", "text": "Name three colors — “rouge”, größer, 日本?"}]},
]
PROMPTS = ["The capital of France is", "Water boils at", "日本の首都は"]
USAGE = {"include_usage": True}


def client(checks: Checks, is_strict: bool = True, **options: Any) -> openai.OpenAI:
    """Without retries, which would hide answers that cause them; is_strict: an answer of another type is an error."""
    settings = {"base_url": f"{checks.url}/v1", "api_key": checks.key, "max_retries": 0, "timeout": 300}
    return openai.OpenAI(_strict_response_validation=is_strict, **settings | options)


def chats(checks: Checks) -> None:
    """Chats, whole and streamed, with n, seed, stop and log-probabilities."""
    own = client(checks).chat.completions
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 24}
    for extra in (
        {"temperature": 0},
        {"seed": 7, "n": 3},
        {"seed": 1, "stop": ["\n", ","]},
        {"temperature": 0, "logprobs": True, "top_logprobs": 3},
    ):
        wanted = checks.direct("/v1/chat/completions", **fields, **extra)
        whole = own.create(**fields, **extra)
        choices = [choice.model_dump(exclude_unset=True) for choice in whole.choices]
        checks.equal(f"choices with {extra}", choices, wanted["choices"])
        checks.equal("usage", whole.usage.completion_tokens, wanted["usage"]["completion_tokens"])
        streamed, usage = joined(own.create(**fields, **extra, stream=True, stream_options=USAGE))
        for choice in whole.choices:
            scored = choice.logprobs.content if choice.logprobs else []
            expected = choice.message.content, scored, choice.finish_reason
            checks.equal(f"streamed text {choice.index} with {extra}", streamed[choice.index], expected)
        checks.equal("streamed usage", usage.total_tokens, whole.usage.total_tokens)


def joined(chunks: Iterable[ChatCompletionChunk]) -> tuple[dict[int, tuple[str, list[Any], str | None]], Any]:
    """Text, log-probabilities and finish reason of each choice of a stream, and its usage."""
    found: dict[int, tuple[str, list[Any], str | None]] = {}
    usage = None
    for chunk in chunks:
        for choice in chunk.choices:
            text, scored, reason = found.get(choice.index, ("", [], None))
            scored = scored + (choice.logprobs.content if choice.logprobs else [])
            found[choice.index] = text + (choice.delta.content or ""), scored, choice.finish_reason or reason
        usage = chunk.usage
    return found, usage


def responses(checks: Checks) -> None:
    """Responses, whole and streamed, with the texts of chats; a conversation that goes on; refusals."""
    own = client(checks).responses
    fields: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 24}
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    for chat, wanted in zip(chats, checks.direct_chats(chats, max_tokens=24), strict=True):
        whole = own.create(input=chat, **fields)
        checks.equal("text", whole.output_text, wanted)
        *_, last = events = list(own.create(input=chat, **fields, stream=True))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        checks.equal("streamed text", "".join(deltas), wanted)
        checks.equal("last event", last.type, f"response.{whole.status}")
        checks.equal("streamed usage", last.response.usage.total_tokens, whole.usage.total_tokens)
        again = [*chat, *whole.output, {"role": "user", "content": "Go on."}]
        checks.holds("next turn", own.create(input=again, **fields).usage.input_tokens > whole.usage.input_tokens)
    with own.stream(input="Hi", instructions="Answer briefly.", model=MODEL, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        checks.equal("text of the helper", stream.get_final_response().output_text, text)
    for what, changed, param in (
        ("background", {"background": True}, "background"),
        ("a tool of OpenAI's", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("storing", {"store": True}, "store"),
    ):
        try:
            own.create(input="Hi", **fields | changed)
        except openai.BadRequestError as error:
            checks.equal(f"parameter of {what}", error.param, param)
        else:
            checks.holds(what, False, "no error")


def completions(checks: Checks) -> None:
    """Completions of several prompts, whole and streamed, of token ids, and with echo."""
    own = client(checks).completions
    fields: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS, "max_tokens": 16, "temperature": 0}
    whole = own.create(**fields)
    checks.equal("texts", [each.text for each in whole.choices], checks.direct_texts(PROMPTS, max_tokens=16))
    texts = [""] * len(PROMPTS)
    # Not strict: the type of a completion has neither the null for finish_reason of chunks nor the null for the
    # log-probability of a prompt's first token, which OpenAI's own answers have, too.
    loose = client(checks, is_strict=False).completions
    for chunk in loose.create(**fields, stream=True, stream_options=USAGE):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    checks.equal("streamed texts", texts, [each.text for each in whole.choices])
    ids = checks.direct("/tokenize", prompt=PROMPTS[0])["tokens"]
    of_ids = own.create(**fields | {"prompt": ids})
    checks.equal("text of token ids", of_ids.choices[0].text, whole.choices[0].text)
    scored = loose.create(**fields | {"prompt": PROMPTS[0], "max_tokens": 0}, echo=True, logprobs=2)
    checks.equal("echo", scored.choices[0].text, PROMPTS[0])
    checks.equal("positions scored", len(scored.choices[0].logprobs.token_logprobs), len(ids))
    joined = "".join(scored.choices[0].logprobs.tokens)
    checks.equal("text of the scored tokens", joined, PROMPTS[0])


def embeddings(checks: Checks) -> None:
    """Embeddings as base64, which the client asks for by itself, and as numbers."""
    wanted = checks.direct_vectors(PROMPTS)
    for form in ({}, {"encoding_format": "float"}):
        own = client(checks, is_strict=bool(form)).embeddings  # base64 is no list of numbers, the type of a vector
        found = [each.embedding for each in own.create(model=MODEL, input=PROMPTS, **form).data]
        checks.holds(f"vectors with {form}", largest_difference(found, wanted) < 1e-6)


def models(checks: Checks) -> None:
    """The list of models, one model, and a model that does not exist."""
    own = client(checks)
    checks.equal("names", [each.id for each in own.models.list()], [MODEL])
    checks.equal("one model", own.models.retrieve(MODEL).id, MODEL)
    checks.raises("another model", openai.NotFoundError, "no-such-model", lambda: own.models.retrieve("no-such-model"))


def errors(checks: Checks) -> None:
    """Each refusal as the error class of its status, with type, code, parameter and request id."""
    own = client(checks)
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 4}
    long = [{"role": "user", "content": "many words " * 5000}]
    for what, changed, kind, param in (
        ("another model", {"model": "no-such-model"}, openai.NotFoundError, "model"),
        ("temperature", {"temperature": -1}, openai.BadRequestError, "temperature"),
        ("role", {"messages": [{"role": "robot", "content": "a"}]}, openai.BadRequestError, "messages[0].role"),
        (
            "a misspelled key",
            {"messages": [{"role": "user", "contents": "a"}]},
            openai.BadRequestError,
            "messages[0].contents",
        ),
        ("too long", {"messages": long}, openai.BadRequestError, "messages"),
        ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools"),
    ):
        try:
            own.chat.completions.create(**fields | changed)
        except openai.APIStatusError as error:
            checks.holds(what, type(error) is kind and error.param == param, f"{error!r}, param {error.param!r}")
            is_code = error.code is None or isinstance(error.code, str)
            checks.holds(
                f"{what}: code and type", is_code and isinstance(error.type, str), f"{error.code!r} {error.type!r}"
            )
            checks.holds(f"{what}: request id", bool(error.request_id))
        else:
            checks.holds(what, False, "no error")
    call = client(checks, api_key="wrong").models.list
    checks.raises("a wrong key", openai.AuthenticationError, "key", call)
    checks.raises("an unknown route", openai.NotFoundError, "/v1/files", own.files.list)
    try:
        own.chat.completions.create(**fields | {"messages": long})
    except openai.BadRequestError as error:
        checks.equal("code of a prompt that is too long", error.code, "context_length_exceeded")


def concurrent(checks: Checks) -> None:
    """Chats of the asynchronous client, 32 at once, after 8 streams that it leaves at their first token."""
    chats = [[{"role": "user", "content": f"What is {i} plus {i}?"}] for i in range(32)]
    fields: dict[str, Any] = {"model": MODEL, "temperature": 0}

    async def left(own: openai.AsyncOpenAI, messages: Any) -> None:
        async with await own.chat.completions.create(messages=messages, **fields, stream=True) as chunks:
            async for chunk in chunks:
                if chunk.choices[0].delta.content:
                    return

    async def answered(own: openai.AsyncOpenAI, messages: Any) -> str | None:
        answer = await own.chat.completions.create(messages=messages, **fields, max_tokens=12)
        return answer.choices[0].message.content

    async def every() -> list[str | None]:
        url = f"{checks.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=checks.key, max_retries=0, timeout=300) as own:
            await asyncio.gather(*(left(own, each) for each in chats[:8]))
            return await asyncio.gather(*(answered(own, each) for each in chats))

    for chat, found, wanted in zip(chats, asyncio.run(every()), checks.direct_chats(chats, max_tokens=12), strict=True):
        checks.equal(chat[0]["content"], found, wanted)


def raw(checks: Checks) -> None:
    """Headers of raw answers, and the server's own parameters as extra fields."""
    own = client(checks).chat.completions
    fields: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    extra = {"return_token_ids": True, "request_id": "my-own-id", "min_tokens": 2}
    answer = own.with_raw_response.create(**fields, extra_body=extra, extra_headers={"X-Request-Id": "other"})
    checks.equal("request id", answer.headers["x-request-id"], "my-own-id")
    choice = answer.parse().choices[0]
    text = checks.direct("/detokenize", tokens=choice.token_ids)["prompt"]
    checks.holds("token ids", text.startswith(choice.message.content), text)


if __name__ == "__main__":
    main(version("openai"), chats, responses, completions, embeddings, models, errors, concurrent, raw)
