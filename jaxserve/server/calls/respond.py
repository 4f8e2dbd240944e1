"""Host: from a checked body to its response: begins the work, then answers in one piece or in events."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.core.outputs import RequestOutput
from jaxserve.server.calls.generation_call import GenerationCall, ResponseBuilder
from jaxserve.server.calls.running_call import Piece, RunningCall
from jaxserve.server.http.disconnect import unless_gone
from jaxserve.server.http.error_responses import as_api_error
from jaxserve.server.http.offload import json_aside, offload
from jaxserve.server.http.sse_response import COMMENT, DONE, EventStream, event
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.server_state import ServerState


class Json(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


async def respond(
    service: ServerState, request: Request, make_call: Callable[[], Awaitable[GenerationCall]], served: AccessRecord
) -> Response:
    """What is refused is refused here, before any header is sent; a client that leaves ends its work.

    make_call: reads what was asked, which may take long. served: is told of all outputs.
    """
    with ExitStack() as stack:
        stack.enter_context(service.working())
        call, work = await unless_gone(request, _begin(service, make_call, service.llm.now()))
        stack.callback(work.abort)
        if not call.body.stream:
            outputs = await unless_gone(request, work.whole(served))
            return await json_aside(partial(call.answer.whole, outputs), sum(map(_size, outputs)))
        return EventStream(_events(service, call, work, served), on_end=stack.pop_all().close)


async def _begin(
    service: ServerState, make_call: Callable[[], Awaitable[GenerationCall]], arrival_s: float
) -> tuple[GenerationCall, RunningCall]:
    call = await make_call()
    return call, await RunningCall.begin(service, call, arrival_s)


async def _events(
    service: ServerState, call: GenerationCall, work: RunningCall, served: AccessRecord
) -> AsyncGenerator[bytes, None]:
    """Chunks, the last one with usage where that is asked for; an error in the middle is an event, too."""
    options, config, answer = call.body.stream_options, service.config, call.answer
    is_continuous = options is not None and options.continuous_usage_stats
    has_usage = config.enable_force_include_usage or (options is not None and options.include_usage)
    try:
        async for piece in work.pieces(served, config.sse_keep_alive_s):
            if piece is None:
                yield COMMENT
                continue
            for chunk in await offload(partial(_chunks, answer, piece), _size(piece.output)):
                if has_usage or is_continuous:
                    chunk["usage"] = answer.usage.as_json() if is_continuous else None
                yield event(chunk)
        if has_usage:
            yield event({**answer.last_chunk(), "usage": answer.usage.as_json()})
    except Exception as error:
        yield event(as_api_error(error).body())
    yield DONE


def _chunks(answer: ResponseBuilder, piece: Piece) -> list[dict[str, Any]]:
    return list(answer.chunks(piece.prompt, piece.output))


def _size(output: RequestOutput) -> int:
    """How much there is to write down: each position's log-probabilities, and each choice."""
    logprobs = sum(len(completion.logprobs or ()) for completion in output.outputs)
    return len(output.prompt_logprobs or ()) + logprobs + len(output.outputs)
