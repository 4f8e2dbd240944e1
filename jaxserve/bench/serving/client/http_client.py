"""Host: `BenchClient`: sends requests over HTTP and measures the streamed answers.

It uses aiohttp, because the client's own time is part of the measurement: where 32 streams get a token at once, the
last one is seen 32 chunks late. A chunk takes 29 µs here under uvloop, 58 µs without it, and 88 and 140 µs with httpx2
(0.02 s between chunks, one core).
"""

from collections.abc import Callable

import aiohttp

from jaxserve.bench.serving.client.request_result import Failure, RequestResult
from jaxserve.bench.serving.client.server_session import message_in, metrics_text, text_of
from jaxserve.bench.serving.client.server_target import ServerTarget
from jaxserve.bench.serving.client.sse_events import SSEDecoder
from jaxserve.bench.serving.client.streamed_answer import StreamedAnswer
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest

EVENT_STREAM = "text/event-stream"


class BenchClient:
    """A client of one server.

    clock: returns seconds, for the times of results. count_tokens: counts the tokens of a text, for servers that report
    no usage.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        target: ServerTarget,
        clock: Callable[[], float],
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.session, self.target, self.clock, self.count_tokens = session, target, clock, count_tokens

    async def send(self, request: BenchRequest) -> RequestResult:
        """Sends one request; server and network errors become a `Failure` of its result."""
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
        except Exception as error:  # an unexpected answer must not end the other requests
            failure = Failure.of("not understood", f"{type(error).__name__}: {error}")
        return answer.result(self.clock(), failure, self.count_tokens)

    async def metrics(self) -> str:
        """The server's metrics as text; empty where it has none."""
        return await metrics_text(self.session, self.target.base_url)

    async def _stream(self, body: bytes, answer: StreamedAnswer) -> Failure | None:
        """Fills the answer; returns the failure where the request was rejected."""
        headers = {"Content-Type": "application/json", "Accept": EVENT_STREAM}
        async with self.session.post(self.target.url, data=body, headers=headers) as response:
            if response.status != 200:
                message = message_in(await text_of(response))
                return Failure.of(f"HTTP {response.status}", message or response.reason or "")
            if response.content_type != EVENT_STREAM:
                return Failure.of("not a stream", f"the server answers with {response.content_type}")
            events = SSEDecoder()
            async for piece in response.content.iter_any():
                now_s = self.clock()
                for event in events.feed(piece):
                    answer.take(event, now_s)
        return None
