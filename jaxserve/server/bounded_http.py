"""Host: `BoundedProtocol`, HTTP whose headers must be short and must come in time."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's, which would collect headers without end, and wait for them as long. Set the bounds by `bounded`."""

    max_header_bytes = 64 << 10
    timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._num_pending = 0  # bytes since the parser last told of a request's begin, headers or body
        self._is_in_headers = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.timeout_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._num_pending += len(data)
        super().data_received(data)
        if self._num_pending > self.max_header_bytes:
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers, self._num_pending = True, 0
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_s, self._give_up)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # those behind a body are nobody's, and must not change what was checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._num_pending = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_pending = 0
        super().on_body(body)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._is_in_headers:
            self.send_400_response("The headers are too long, or took too long.")
        else:
            self.transport.close()


def bounded(max_header_bytes: int, timeout_s: float) -> type[BoundedProtocol]:
    """The protocol with these bounds, as uvicorn takes it."""
    return type("Bounded", (BoundedProtocol,), {"max_header_bytes": max_header_bytes, "timeout_s": timeout_s})
