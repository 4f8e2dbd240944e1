"""An OpenAI-compatible server whose responses and their times are scripted by a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

HEAD = b"HTTP/1.1 %d Scripted\r\ncontent-type: %s\r\n"
MODEL = "scripted"


@dataclass(frozen=True)
class Step:
    """after_s: seconds after the previous step. data: of an event; None: the connection is cut."""

    after_s: float
    data: str | None


@dataclass(frozen=True)
class Stream:
    steps: Sequence[Step]


@dataclass(frozen=True)
class Refusal:
    status: int
    body: str = ""
    content_type: str = "application/json"


Script = Callable[[dict[str, Any]], Stream | Refusal]


def text_chunk(text: str, finish_reason: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}], "usage": None})


def chat_chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def usage_chunk(prompt_tokens: int, completion_tokens: int) -> str:
    return json.dumps(
        {"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}}
    )


def answer(*gaps_s: float, tokens: int, prompt_tokens: int = 5) -> Stream:
    """A text chunk after each gap; usage (`tokens` in total) and the end follow at once."""
    texts = [Step(gap, text_chunk("word ")) for gap in gaps_s]
    end = [text_chunk("", "length"), usage_chunk(prompt_tokens, tokens), "[DONE]"]
    return Stream([*texts, *(Step(0, data) for data in end)])


@dataclass
class ScriptedServer:
    """bodies: of the requests, in order. under_way: requests in progress; most: their maximum. ready_at_s: on the
    loop's clock. metrics: the successive responses of /metrics."""

    script: Script
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0
    url: str = ""
    ready_at_s: float = 0.0
    metrics: list[str] = field(default_factory=list)
    _connections: list[Any] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ScriptedServer"]:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(asyncio.current_task())
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client disconnected
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line.partition(":")[2] for line in head.splitlines() if line.lower().startswith("content-length")]
        length = int(*lengths)
        body = json.loads(await reader.readexactly(length) or b"{}")
        path = head.split()[1]
        self.headers.append(head)
        if path == "/health":
            is_ready = asyncio.get_running_loop().time() >= self.ready_at_s
            return self._plain(writer, Refusal(200 if is_ready else 503))
        if path == "/metrics":
            return self._plain(writer, Refusal(200, self.metrics.pop(0)) if self.metrics else Refusal(404))
        if path == "/v1/models":
            return self._plain(writer, Refusal(200, json.dumps({"data": [{"id": MODEL}]})))
        if path == "/tokenize":
            tokens = [len(word) for word in body["prompt"].split()]
            return self._plain(writer, Refusal(200, json.dumps({"tokens": tokens, "count": len(tokens)})))
        self.bodies.append(body)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            found = self.script(body)
            return self._plain(writer, found) if isinstance(found, Refusal) else await self._stream(writer, found)
        finally:
            self.under_way -= 1

    def _plain(self, writer: asyncio.StreamWriter, answer: Refusal) -> bool:
        body = answer.body.encode()
        head = HEAD % (answer.status, answer.content_type.encode())
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        return True

    async def _stream(self, writer: asyncio.StreamWriter, stream: Stream) -> bool:
        writer.write(HEAD % (200, b"text/event-stream") + b"transfer-encoding: chunked\r\n\r\n")
        for step in stream.steps:
            if step.after_s:
                await asyncio.sleep(step.after_s)
            if step.data is None:
                return False
            event = f"data: {step.data}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")
        return True


@contextmanager
def served_in_thread(script: Script) -> Iterator[ScriptedServer]:
    """Runs the server in its own event loop and in real time, for clients outside it."""
    found: Future[tuple[ScriptedServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        async with ScriptedServer(script).serve() as server:
            found.set_result((server, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=lambda: asyncio.run(main()))
    thread.start()
    server, loop, stop = found.result(timeout=60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
