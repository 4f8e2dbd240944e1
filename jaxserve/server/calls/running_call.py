"""Host: `RunningCall`, what one HTTP request asks of the engine: begun as a whole, given up as a whole."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import LateError
from jaxserve.core.outputs import RequestOutput
from jaxserve.server.calls.generation_call import GenerationCall
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.server_state import ServerState

if TYPE_CHECKING:  # it imports jax
    from jaxserve.engine.serving.result_stream import ResultStream


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the output for one of a request's prompts."""

    prompt: int
    output: RequestOutput


class RunningCall:
    """The prompts of a request, and what comes of them."""

    def __init__(self, submissions: "ResultStream[RequestOutput]"):
        self._submissions = submissions
        self._num_tokens = 0  # that have come

    @classmethod
    async def begin(cls, service: ServerState, call: GenerationCall, arrival_s: float | None = None) -> "RunningCall":
        """Submit all prompts, or none, where one of them is refused: its error is raised at once.

        arrival_s: when the request came, by the engine's clock; by default now.
        """
        options: Any = {"wants_pieces": call.body.stream, "arrival_s": arrival_s, **call.options}
        return cls(await service.llm.client.generate(call.prompts, call.params, **options))

    def abort(self) -> None:
        """End what has not ended; at any time, as often as wanted."""
        self._submissions.abort()

    async def whole(self, served: AccessRecord) -> list[RequestOutput]:
        """All outputs, in the order of their prompts; `served` is told of them. Raises as `pieces` does."""
        outputs = {}
        async for piece in self.pieces(served):
            assert piece is not None
            outputs[piece.prompt] = piece.output
        return [outputs[number] for number in sorted(outputs)]

    async def pieces(self, served: AccessRecord, idle_s: float = 0) -> "AsyncGenerator[Piece | None, None]":
        """Every piece as it comes, of which `served` is told; None after each `idle_s` seconds without one (0: never).

        Raises `ApiError` where a prompt could not be computed, and `LateError` where no prompt had a token in time.
        """
        while self._submissions.has_more:
            try:
                async with asyncio.timeout(idle_s or None):
                    number, output = await self._submissions.next_indexed()
            except TimeoutError:
                yield None
                continue
            served.note(output)
            self._check(output)
            yield Piece(number, output)

    def _check(self, output: RequestOutput) -> None:
        self._num_tokens += sum(len(completion.token_ids) for completion in output.outputs)
        reasons = {completion.finish_reason for completion in output.outputs}
        if "error" in reasons:
            raise ApiError(500, "the model's numbers were not finite for this request", code="not_finite")
        if "abort" in reasons:
            raise ApiError(503, "the request was aborted by the server", code="aborted")
        if "timeout" in reasons and not self._num_tokens and not self._submissions.has_more:
            raise LateError("the request timed out before its first token")
