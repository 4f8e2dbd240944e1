"""Host: `respond`: submits a generation call and builds its response, whole or as server-sent events."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.serving.offload import offload
from jaxserve.server.calls.generation_call import GenerationCall
from jaxserve.server.calls.running_call import OutputPart, RunningCall
from jaxserve.server.calls.stream_events import StreamEvents
from jaxserve.server.http.disconnect import unless_disconnected
from jaxserve.server.http.error_responses import as_api_error
from jaxserve.server.http.json_response import MAX_INLINE_ITEMS, offloaded_json
from jaxserve.server.http.sse_response import COMMENT, EventStream
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.server_state import ServerState


async def respond(
    state: ServerState, request: Request, make_call: Callable[[], Awaitable[GenerationCall]], record: AccessRecord
) -> Response:
    """Refusals are raised before any header is sent; a disconnect aborts the call.

    make_call: translates the body, which may take long. record: receives all outputs.
    """
    with ExitStack() as stack:
        stack.enter_context(state.active_request())
        call, running = await unless_disconnected(request, _start(state, make_call, state.engine.now()))
        stack.callback(running.abort)
        if not call.body.stream:
            outputs = await unless_disconnected(request, running.outputs(record))
            return await offloaded_json(partial(call.response.whole, outputs), sum(map(_num_items, outputs)))
        return EventStream(_events(state, call, running, record), on_end=stack.pop_all().close)


async def _start(
    state: ServerState, make_call: Callable[[], Awaitable[GenerationCall]], arrival_s: float
) -> tuple[GenerationCall, RunningCall]:
    call = await make_call()
    return call, await RunningCall.start(state, call, arrival_s)


async def _events(
    state: ServerState, call: GenerationCall, running: RunningCall, record: AccessRecord
) -> AsyncGenerator[bytes, None]:
    """The call's events. An error after the start is an event, too."""
    events = call.events
    for event in events.first():
        yield event
    try:
        async for part in running.parts(record, state.config.sse_keep_alive_s):
            if part is None:
                yield COMMENT
                continue
            for event in await offload(partial(_part, events, part), _num_items(part.output), MAX_INLINE_ITEMS):
                yield event
        ending = list(events.last())
    except Exception as error:
        ending = list(events.failed(as_api_error(error)))
    for event in ending:
        yield event


def _part(events: StreamEvents, part: OutputPart) -> list[bytes]:
    return list(events.part(part.prompt_index, part.output))


def _num_items(output: RequestOutput) -> int:
    """The number of items to read or serialize: choices, tokens and positions with log-probabilities."""
    num_tokens = sum(len(completion.token_ids) for completion in output.outputs)
    return len(output.prompt_logprobs or ()) + num_tokens + len(output.outputs)
