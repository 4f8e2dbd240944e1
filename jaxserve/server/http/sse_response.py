"""Host: server-sent events: `sse_event` encodes one, `EventStream` sends them until the client disconnects."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
COMMENT = b": still here\n\n"  # keeps proxies from closing a silent connection
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # proxies must forward each event at once


def sse_event(data: Any, name: str | None = None) -> bytes:
    """name: the event's type, where clients read it."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


class EventStream(StreamingResponse):
    """Sends events as they arrive. on_end: called once, at the end of the stream or when the client disconnects, even
    before the first event."""

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]):
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
