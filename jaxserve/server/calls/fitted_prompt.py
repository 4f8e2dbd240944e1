"""Host: `fitted_prompt`: the prompt of as much of a conversation as fits, without its oldest turns."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt

Message = dict[str, Any]
Render = Callable[[list[Message]], Awaitable[Prompt]]
HEADS = ("system", "developer")


async def fitted_prompt(render: Render, messages: list[Message], num_tokens: int) -> Prompt:
    """All messages if their prompt has at most `num_tokens` tokens; else those at the beginning that are the system's,
    and the last turns, each of which begins with a message of a user. The last turn stays, whatever its length.

    render: raises `RequestError` for messages that are too long for the context. It is called as often as a binary
    search needs.
    """
    num_heads = next((i for i, message in enumerate(messages) if message["role"] not in HEADS), len(messages))
    later = [i for i in range(num_heads + 1, len(messages)) if messages[i]["role"] == "user"]
    starts = [num_heads, *later]

    def kept(start: int) -> list[Message]:
        return [*messages[:num_heads], *messages[start:]]

    return await _first_that_fits([kept(start) for start in starts], render, num_tokens)


async def _first_that_fits(candidates: Sequence[list[Message]], render: Render, num_tokens: int) -> Prompt:
    """candidates: ever shorter; the last one if none fits."""
    low, high, best = 0, len(candidates) - 1, None
    middle = 0  # the whole conversation usually fits
    while low < high:
        found = await _rendered(candidates[middle], render, num_tokens)
        low, high, best = (low, middle, found) if found is not None else (middle + 1, high, best)
        middle = (low + high) // 2
    return best if best is not None else await render(candidates[low])


async def _rendered(messages: list[Message], render: Render, num_tokens: int) -> Prompt | None:
    """None for a prompt that is too long."""
    try:
        prompt = await render(messages)
    except RequestError as error:
        if "maximum context length" in str(error):
            return None
        raise
    return prompt if len(prompt.token_ids or ()) <= num_tokens else None
