"""Host: `RunningCall`: a generation call in the engine: its prompts are submitted and aborted together."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from jaxserve.core.errors import LateError
from jaxserve.core.options.lora_request import AdapterFailure
from jaxserve.core.options.no_token_left import NoTokenLeft
from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.serving.result_stream import ResultStream
from jaxserve.server.calls.generation_call import GenerationCall
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.response_format import errors_name
from jaxserve.server.server_state import ServerState


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The new part of one prompt's output. prompt_index: the index of its prompt in the request."""

    prompt_index: int
    output: RequestOutput


class RunningCall:
    """The submitted prompts of a request, and their results. constraint_field: the body's field that binds its texts to
    a form, if one does."""

    def __init__(self, results: ResultStream[RequestOutput], constraint_field: str):
        self._results, self._constraint_field = results, constraint_field
        self._num_tokens = 0  # received so far

    @classmethod
    async def start(cls, state: ServerState, call: GenerationCall, arrival_s: float | None = None) -> "RunningCall":
        """Submit all prompts; if one is refused, none runs and its error is raised.

        arrival_s: the request's arrival time on the engine's clock, by default now.
        """
        options: Any = {"wants_pieces": call.body.stream, "arrival_s": arrival_s, "lora_request": call.adapter}
        options |= call.options
        field = call.body.constraint_field
        with errors_name(field):
            return cls(await state.engine.generate(call.prompts, call.params, **options), field)

    def abort(self) -> None:
        """Abort the prompts that are not finished; idempotent, allowed at any time."""
        self._results.abort()

    async def outputs(self, record: AccessRecord) -> list[RequestOutput]:
        """The whole outputs, in the order of the prompts; `record` receives them. Raises as `parts` does."""
        outputs: dict[int, RequestOutput] = {}
        async for part in self.parts(record):
            assert part is not None
            outputs[part.prompt_index] = part.output
        return [outputs[index] for index in sorted(outputs)]

    async def parts(self, record: AccessRecord, idle_s: float = 0) -> AsyncGenerator[OutputPart | None, None]:
        """Every part when it arrives, also passed to `record`; None after each `idle_s` seconds without one (0: never).

        Raises `ApiError` for a prompt that could not be computed, and `LateError` if no prompt had a token in time.
        """
        while self._results.has_more:
            try:
                async with asyncio.timeout(idle_s or None):
                    prompt_index, output = await self._results.next_indexed()
            except TimeoutError:
                yield None
                continue
            record.note(output)
            self._check(output)
            yield OutputPart(prompt_index, output)

    def _check(self, output: RequestOutput) -> None:
        self._num_tokens += sum(len(completion.token_ids) for completion in output.outputs)
        reasons = {completion.finish_reason for completion in output.outputs}
        if "error" in reasons:
            for completion in output.outputs:
                if completion.finish_reason == "error" and isinstance(completion.stop_reason, AdapterFailure):
                    raise ApiError(400, completion.stop_reason, param="model", code="adapter_failed")
                if completion.finish_reason == "error" and isinstance(completion.stop_reason, NoTokenLeft):
                    reason = completion.stop_reason
                    raise ApiError(400, reason, param=reason.param, code="no_token_left")
                if completion.finish_reason == "error" and isinstance(completion.stop_reason, str):
                    message = f"{self._constraint_field}: {completion.stop_reason}"
                    raise ApiError(400, message, param=self._constraint_field, code="grammar_failed")
            raise ApiError(500, "the model computed non-finite numbers for this request", code="not_finite")
        if "abort" in reasons:
            raise ApiError(503, "the request was aborted by the server", code="aborted")
        if "timeout" in reasons and not self._num_tokens and not self._results.has_more:
            raise LateError("the request timed out before its first token")
