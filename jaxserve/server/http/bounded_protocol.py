"""Host: `BoundedProtocol`, HTTP whose headers must be short, and whose requests and answers must move on."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jaxserve.server.http.no_upgrade_parser import NoUpgradeParser
from jaxserve.server.server_config import ServerConfig


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's, which would collect headers without end, and wait for a request as long. Set the bounds by `bounded`.

    The timer runs while no answer is under way and a request is awaited, or the rest of one that was answered before
    all of it had come. Idle connections are uvicorn's matter, but for those on which anything comes. A client that
    leaves unread what was sent is cut off: its answer would pile up here.
    """

    max_header_bytes = 64 << 10
    timeout_s = send_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.parser = NoUpgradeParser(self, self._again)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self._num_pending = 0  # bytes since the parser last told of a request's begin, headers or body
        self._is_in_headers = self._is_whole = False
        self._is_read_again = False  # the request asks for another protocol
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._answered: Any = None  # the cycle under way, while `cycle` is that of the last request that came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._has_been_read()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading(None)

    def resume_writing(self) -> None:
        self._has_been_read()
        super().resume_writing()

    def _watch_reading(self, left: int | None) -> None:
        """left: bytes that waited to be read a while ago."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == left:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(self.send_timeout_s, self._watch_reading, waiting)

    def _has_been_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def data_received(self, data: bytes) -> None:
        self._num_pending += len(data)
        super().data_received(data)
        if self._num_pending > self.max_header_bytes:
            self._give_up()
        self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers, self._is_whole, self._num_pending = True, False, 0
        self._stop_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # those behind a body are nobody's, and must not change what was checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._num_pending = False, 0
        self._stop_timer()
        self._is_read_again = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._is_read_again:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_read_again:
            self._is_whole = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_whole:
            self._start_timer()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _again(self) -> bytes | None:
        if not self._is_read_again:
            return None
        first = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = (b"%b: %b\r\n" % (name, value) for name, value in self.headers if name != b"upgrade")
        return first + b"".join(kept) + b"\r\n"

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None and not self._is_answering and not self.transport.is_closing():
            self._timer = self.loop.call_later(self.timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_in_headers and not self._is_answering:
            self.send_400_response("The headers are too long, or took too long.")
        else:
            self.transport.close()


def bounded(config: ServerConfig) -> type[BoundedProtocol]:
    """The protocol with a server's bounds, as uvicorn takes it."""
    bounds = {
        "max_header_bytes": config.max_header_bytes,
        "timeout_s": config.receive_timeout_s,
        "send_timeout_s": config.send_timeout_s,
    }
    return type("Bounded", (BoundedProtocol,), bounds)
