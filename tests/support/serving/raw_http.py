"""A client of minimal cost: one request per connection over plain sockets, with the response parsed afterwards."""

import asyncio
import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    """raw: the bytes received. wait_s: from the request's last byte to the response's first; seconds: to its last."""

    raw: bytes
    wait_s: float
    seconds: float

    @cached_property
    def status(self) -> int:
        """0: the connection was closed without a response."""
        return int(self.raw.split(b" ", 2)[1]) if self.raw else 0

    @cached_property
    def headers(self) -> dict[str, str]:
        lines = self.raw.partition(END_OF_HEAD)[0].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @cached_property
    def body(self) -> bytes:
        rest = self.raw.partition(END_OF_HEAD)[2]
        if self.headers.get("transfer-encoding") != "chunked":
            return rest
        parts = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            parts.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        return b"".join(parts)

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The JSON of each server-sent event, without the final `[DONE]`."""
        *events, done, end = self.body.split(b"\n\n")
        if (done, end) != (b"data: [DONE]", b""):
            raise ValueError(f"the stream ends with {done[-200:]!r} {end[:200]!r}")
        return [json.loads(event.removeprefix(b"data: ")) for event in events if not event.startswith(b":")]


async def ask(url: str, path: str, body: Any = None) -> Answer:
    """Send a POST with a body, else a GET, and read the whole response."""
    parts, raw = urlsplit(url), b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(head.encode() + raw)
        await writer.drain()
        sent_s = time.monotonic()
        first = await reader.read(1 << 16)
        wait_s, received = time.monotonic() - sent_s, [first]
        while part := await reader.read(1 << 16):
            received.append(part)
        return Answer(b"".join(received), wait_s, time.monotonic() - sent_s)
    finally:
        writer.close()
