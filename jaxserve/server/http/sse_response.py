"""Host: server-sent events: how chunks are written, and a response that gives up its work when the client leaves."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
COMMENT = b": still here\n\n"  # proxies cut silent connections
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies must pass each event on at once


def event(data: Any) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Sends events as they come. on_end: called once, however it ends: at its end, or when the client leaves, even
    before the first event was asked for."""

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]):
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
