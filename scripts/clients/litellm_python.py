"""LiteLLM's Python functions with its provider for OpenAI-compatible servers."""

import asyncio
from importlib.metadata import version
from typing import Any

import litellm

from scripts.clients.checks import MODEL, Checks, largest_difference, main

NAME = f"openai/{MODEL}"
CHATS = [[{"role": "user", "content": f"Name {count} animals."}] for count in ("two", "three", "four", "five")]
PROMPTS = ["The capital of France is", "Water boils at"]


def common(checks: Checks) -> dict[str, Any]:
    return {"api_base": f"{checks.url}/v1", "api_key": checks.key, "num_retries": 0}


def chats(checks: Checks) -> None:
    """Chats, whole, streamed and asynchronous."""
    fields: dict[str, Any] = {"model": NAME, "temperature": 0, "max_tokens": 16, **common(checks)}
    wanted = checks.direct_chats(CHATS, max_tokens=16)
    whole = litellm.completion(messages=CHATS[0], **fields)
    checks.equal("text", whole.choices[0].message.content, wanted[0])
    chunks = list(litellm.completion(messages=CHATS[0], stream=True, stream_options={"include_usage": True}, **fields))
    rebuilt = litellm.stream_chunk_builder(chunks, messages=CHATS[0])
    checks.equal("streamed text", rebuilt.choices[0].message.content, wanted[0])
    checks.equal("streamed usage", rebuilt.usage.total_tokens, whole.usage.total_tokens)

    async def every() -> list[Any]:
        return await asyncio.gather(*(litellm.acompletion(messages=each, **fields) for each in CHATS))

    checks.equal("asynchronous", [each.choices[0].message.content for each in asyncio.run(every())], wanted)
    several = litellm.batch_completion(messages=CHATS, **fields)
    checks.equal("several chats", [each.choices[0].message.content for each in several], wanted)


def completions(checks: Checks) -> None:
    """Completions, whole and streamed."""
    name = f"text-completion-openai/{MODEL}"
    fields: dict[str, Any] = {"model": name, "temperature": 0, "max_tokens": 16, **common(checks)}
    wanted = checks.direct_texts(PROMPTS, max_tokens=16)
    whole = litellm.text_completion(prompt=PROMPTS, **fields)
    checks.equal("texts", [each["text"] for each in whole.choices], wanted)
    chunks = litellm.text_completion(prompt=PROMPTS[0], stream=True, **fields)
    checks.equal("streamed text", "".join(each.choices[0].text or "" for each in chunks), wanted[0])


def embeddings(checks: Checks) -> None:
    """Embeddings."""
    answer = litellm.embedding(model=NAME, input=PROMPTS, encoding_format="float", **common(checks))
    found = [each["embedding"] for each in answer.data]
    checks.holds("vectors", largest_difference(found, checks.direct_vectors(PROMPTS)) < 1e-6)


def errors(checks: Checks) -> None:
    """Refusals as the classes that LiteLLM derives from status and message."""
    fields: dict[str, Any] = {"model": NAME, "messages": CHATS[0], "max_tokens": 4, **common(checks)}
    long = [{"role": "user", "content": "many words " * 5000}]
    for changed, kind, words in (
        ({"messages": long}, litellm.ContextWindowExceededError, "maximum context length"),
        ({"model": "openai/no-such-model"}, litellm.NotFoundError, "no-such-model"),
        ({"temperature": -1}, litellm.BadRequestError, "temperature"),
        ({"api_key": "wrong"}, litellm.AuthenticationError, "key"),
    ):
        checks.raises(kind.__name__, kind, words, lambda changed=changed: litellm.completion(**fields | changed))


if __name__ == "__main__":
    main(version("litellm"), chats, completions, embeddings, errors)
