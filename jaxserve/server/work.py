"""Host: `Work`, what one HTTP request asks of the engine: begun as a whole, given up as a whole."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxserve.core.outputs import RequestOutput
from jaxserve.server.aside import AT_ONCE
from jaxserve.server.calls import Call
from jaxserve.server.errors import ApiError
from jaxserve.server.request_log import Served
from jaxserve.server.service import Service

if TYPE_CHECKING:  # it imports jax
    from jaxserve.engine.submission import Submission


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the output for one of a request's prompts."""

    prompt: int
    output: RequestOutput


class Work:
    """The submissions of a request's prompts, in their order."""

    def __init__(self, submissions: "list[Submission]"):
        self._submissions = submissions

    @classmethod
    async def begin(cls, service: Service, call: Call) -> "Work":
        """Submit all prompts. Where one is refused, at once, none goes on, and its error is raised."""
        work = cls([])
        try:
            for i, prompt in enumerate(call.prompts):
                if i % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)  # others' requests go on meanwhile
                asked = {**prompt.as_dict(), "cache_salt": prompt.cache_salt}
                submission = service.llm.submit(asked, call.params, wants_pieces=call.body.stream, **call.options)
                work._submissions.append(await submission)
        except BaseException:
            work.abort()
            raise
        return work

    def abort(self) -> None:
        """End what has not ended; at any time, as often as wanted."""
        for submission in self._submissions:
            submission.abort()

    async def whole(self, served: Served) -> list[RequestOutput]:
        """All outputs, of which `served` is told. Raises `ApiError` where one could not be computed, or ended before
        its first token was there."""
        outputs = [await submission.next() for submission in self._submissions]
        for output in outputs:
            served.note(output)
            check_end(output)
        return outputs

    async def pieces(self, idle_s: float) -> "AsyncGenerator[Piece | None, None]":
        """Every piece as it comes; None after each `idle_s` seconds without one (0: never)."""
        waits = {asyncio.ensure_future(each.next()): i for i, each in enumerate(self._submissions)}
        try:
            while waits:
                done, _ = await asyncio.wait(waits, timeout=idle_s or None, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    yield None
                for task in sorted(done, key=waits.__getitem__):
                    number, output = waits.pop(task), task.result()
                    if not output.finished:
                        waits[asyncio.ensure_future(self._submissions[number].next())] = number
                    yield Piece(number, output)
        finally:
            for task in waits:
                task.cancel()


def check_end(output: RequestOutput) -> None:
    """Raise `ApiError` for an output, or a last piece, that ended badly."""
    for completion in output.outputs:
        if completion.finish_reason == "error":
            raise ApiError(500, "the model's numbers were not finite for this request", code="not_finite")
        if completion.finish_reason == "abort":
            raise ApiError(503, "the request was aborted by the server", code="aborted")
        if completion.finish_reason == "timeout" and output.metrics and output.metrics.first_token_s is None:
            headers = {"Retry-After": "1"}
            raise ApiError(503, "the request timed out before its first token", code="timeout", headers=headers)
