"""Host: `BenchClient`, the HTTP side of the benchmark.

aiohttp, because the client's own time is part of what it measures: where 32 streams get a token at once, the last one's
is seen 32 chunks late. A chunk takes 29 µs here under uvloop, 58 µs without it, 88 and 140 µs in httpx2 (0.02 s between
chunks, one core).
"""

from collections.abc import Callable

import aiohttp

from jaxserve.bench.serving.client.reply import Failure, RequestResult
from jaxserve.bench.serving.client.server_target import ServerTarget
from jaxserve.bench.serving.client.session import metrics_text, said_in, text_of
from jaxserve.bench.serving.client.sse_events import SSEDecoder
from jaxserve.bench.serving.client.streamed_answer import StreamedAnswer
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest

EVENT_STREAM = "text/event-stream"


class BenchClient:
    """clock: seconds, on which replies are dated. count_tokens: of a text, for servers that do not tell."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        target: ServerTarget,
        clock: Callable[[], float],
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.session, self.target, self.clock, self.count_tokens = session, target, clock, count_tokens

    async def send(self, request: BenchRequest) -> RequestResult:
        """Never raises for what a server or a network can do."""
        body = self.target.body(request)
        answer = StreamedAnswer(self.clock())
        try:
            failure = await self._stream(body, answer)
        except TimeoutError:
            failure = Failure.of("timeout", f"not done after {self.target.timeout_s:g} s")
        except aiohttp.ClientConnectorError as error:
            failure = Failure.of("cannot connect", str(error))
        except (aiohttp.ClientPayloadError, aiohttp.ServerConnectionError, OSError) as error:
            failure = Failure.of("connection lost", str(error) or type(error).__name__)
        except aiohttp.ClientError as error:
            failure = Failure.of("not HTTP", f"{type(error).__name__}: {error}")
        except Exception as error:  # of an answer that nobody has thought of: the other requests go on
            failure = Failure.of("not understood", f"{type(error).__name__}: {error}")
        return answer.reply(self.clock(), failure, self.count_tokens)

    async def metrics(self) -> str:
        """Of the server, as text; empty where it shows none."""
        return await metrics_text(self.session, self.target.base_url)

    async def _stream(self, body: bytes, answer: StreamedAnswer) -> Failure | None:
        """Fills the answer; returns the failure of a request that was refused."""
        headers = {"Content-Type": "application/json", "Accept": EVENT_STREAM}
        async with self.session.post(self.target.url, data=body, headers=headers) as response:
            if response.status != 200:
                said = said_in(await text_of(response))
                return Failure.of(f"HTTP {response.status}", said or response.reason or "")
            if response.content_type != EVENT_STREAM:
                return Failure.of("not a stream", f"the server answers with {response.content_type}")
            events = SSEDecoder()
            async for piece in response.content.iter_any():
                now_s = self.clock()
                for event in events.feed(piece):
                    answer.take(event, now_s)
        return None
