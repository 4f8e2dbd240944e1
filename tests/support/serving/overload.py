"""Sends more requests than a server can serve, and records the response to each."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.serving.raw_http import Answer, ask


@dataclass(frozen=True)
class Overloaded:
    """The responses to accepted and to refused requests."""

    accepted: list[Answer]
    refused: list[Answer]

    @property
    def refused_p99_s(self) -> float:
        """From the last byte of the body to the first byte of the response."""
        waits = sorted(answer.wait_s for answer in self.refused)
        return waits[int(0.99 * (len(waits) - 1))]


async def overload(url: str, number: int, seconds: float, body: Callable[[int], dict[str, Any]]) -> Overloaded:
    """Starts `number` completions at equal intervals over `seconds`, without waiting for responses."""

    async def one(i: int) -> Answer:
        await asyncio.sleep(i * seconds / number)
        return await ask(url, "/v1/completions", body(i))

    answers = await asyncio.gather(*(one(i) for i in range(number)))
    is_in = [answer.status == 200 for answer in answers]
    kept = [answer for answer, ok in zip(answers, is_in, strict=True) if ok]
    return Overloaded(kept, [answer for answer, ok in zip(answers, is_in, strict=True) if not ok])


def check_overloaded(found: Overloaded, num_tokens: int) -> None:
    """All accepted requests have their full text, and all others got a Retry-After. num_tokens: of each text."""
    for answer in found.refused:
        assert answer.status == 429, (answer.status, answer.raw[:300])
        assert answer.json["error"]["code"] == "queue_full"
        assert int(answer.headers["retry-after"]) >= 1
    for answer in found.accepted:
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        last = [event for event in answer.events if event["choices"]][-1] if is_stream else answer.json
        assert last["choices"][0]["finish_reason"] == "length"
        usage = answer.events[-1]["usage"] if is_stream else last["usage"]
        assert usage["completion_tokens"] == num_tokens
