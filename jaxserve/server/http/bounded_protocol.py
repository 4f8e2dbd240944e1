"""Host: `BoundedProtocol`: uvicorn's HTTP protocol with limits on header size and on slow senders and readers."""

import asyncio
from collections.abc import Buffer, Callable
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jaxserve.server.server_config import ServerConfig


class BoundedProtocol(HttpToolsProtocol):
    """Adds the limits that uvicorn lacks: it buffers headers of any size and waits for a request forever.

    Use the class that `bounded` returns. The receive timer runs while no response is in progress and the server waits
    for a request, or for the rest of a request that was answered early. Idle connections are left to uvicorn's
    keep-alive timeout unless bytes arrive. A client that does not read its response is disconnected, since the response
    would otherwise accumulate in memory. `_start_asgi_task` is internal to uvicorn: pyproject.toml caps the version.
    """

    max_header_bytes = 64 << 10
    timeout_s = send_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.parser = NoUpgradeParser(self, self._head_without_upgrade)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it
        self._num_pending = 0  # bytes since the parser last reported a request's start, headers or body
        self._is_in_headers = self._is_whole = False
        self._is_upgrade = False  # the current head asks for another protocol and will be parsed again without that
        self._receive_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._running_cycle: Any = None  # the cycle in progress; with pipelining `cycle` is the last one received

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_receive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_receive_timer()
        self._stop_send_timer()
        if self._running_cycle is not None and not self._running_cycle.response_complete:
            self._running_cycle.disconnected = True
            self._running_cycle.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_send_progress(None)

    def resume_writing(self) -> None:
        self._stop_send_timer()
        super().resume_writing()

    def _check_send_progress(self, num_unread: int | None) -> None:
        """Disconnect a client that has read nothing since the last check. num_unread: bytes unread at that check."""
        num_unread_now = self.transport.get_write_buffer_size()
        if num_unread_now == num_unread:
            self.transport.abort()
        else:
            self._send_timer = self.loop.call_later(self.send_timeout_s, self._check_send_progress, num_unread_now)

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._num_pending += len(data)
        super().data_received(data)
        if self._num_pending > self.max_header_bytes:
            self._refuse()
        self._start_receive_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers, self._is_whole, self._num_pending = True, False, 0
        self._stop_receive_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:  # trailers behind a body are dropped: they must not change headers already checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_headers, self._num_pending = False, 0
        self._stop_receive_timer()
        self._is_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._is_upgrade:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_upgrade:
            self._is_whole = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_whole:
            self._start_receive_timer()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def _head_without_upgrade(self) -> bytes | None:
        if not self._is_upgrade:
            return None
        first = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = (b"%b: %b\r\n" % (name, value) for name, value in self.headers if name != b"upgrade")
        return first + b"".join(kept) + b"\r\n"

    @property
    def _is_responding(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, though uvicorn's annotation does not say so
        return cycle is not None and not cycle.response_complete

    def _start_receive_timer(self) -> None:
        if self._receive_timer is None and not self._is_responding and not self.transport.is_closing():
            self._receive_timer = self.loop.call_later(self.timeout_s, self._refuse)

    def _stop_receive_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _refuse(self) -> None:
        """Close a connection over its limits; while headers are read, with a response of status 400."""
        self._stop_receive_timer()
        if self.transport.is_closing():
            return
        if self._is_in_headers and not self._is_responding:
            self.send_400_response("The headers are too long, or took too long.")
        else:
            self.transport.close()


class NoUpgradeParser(HttpRequestParser):
    """httptools ends a message at a request to upgrade and skips its body; this parser reads the head again without it.

    head_without_upgrade: returns the head to parse instead, or None where an upgrade is genuine (CONNECT).
    """

    def __init__(self, protocol: Any, head_without_upgrade: Callable[[], bytes | None]):
        super().__init__(protocol)
        self._head_without_upgrade = head_without_upgrade

    def feed_data(self, data: Buffer) -> None:
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except HttpParserUpgrade as upgrade:
                head = self._head_without_upgrade()
                if head is None:
                    raise
                rest = rest[upgrade.args[0] :]
            super().feed_data(head)


def bounded(config: ServerConfig) -> type[BoundedProtocol]:
    """The protocol class with a server's limits, for `uvicorn.Config(http=…)`."""
    limits = {
        "max_header_bytes": config.max_header_bytes,
        "timeout_s": config.receive_timeout_s,
        "send_timeout_s": config.send_timeout_s,
    }
    return type("Bounded", (BoundedProtocol,), limits)
