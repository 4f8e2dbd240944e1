"""Host: `ResultStream`: results of admitted requests in an event loop; `ResultRouter`: delivers them there."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.engine.serving.messages import StepOutput


class ResultStream[Output: (RequestOutput, EmbeddingRequestOutput)]:
    """Results of requests that were admitted together, for the event loop in which it was made.

    Read it until `has_more` is false, or `abort` it.
    """

    def __init__(self, keys: range, abort: Callable[[list[int]], None]):
        self.loop = asyncio.get_running_loop()
        self._first, self._abort = keys.start, abort
        self._open = set(keys)  # requests of which more is to be read
        self._results: asyncio.Queue[StepOutput] = asyncio.Queue()
        self._end: Exception = RuntimeError("no request was admitted")

    @property
    def has_more(self) -> bool:
        """Whether a request has not been read to its end."""
        return bool(self._open)

    async def next(self) -> Output:
        """What is new of any request, or the whole of it; the last output of each is `finished`.

        Raises what ends a request: EngineDeadError, or AbortedError after `abort`. Once no request has more, raises at
        once: the same again, or RuntimeError. A cancelled call loses nothing.
        """
        return (await self.next_indexed())[1]

    async def next_indexed(self) -> tuple[int, Output]:
        """As `next`, with the index of the request among those that were admitted together."""
        if not self._open:
            raise self._end
        key, output = result = await self._results.get()
        if result.is_last and key in self._open:
            self._open.discard(key)
            is_error = isinstance(output, Exception)
            self._end = output if is_error else RuntimeError("the request has ended, and all of it was read")
        if isinstance(output, Exception):
            raise output
        return key - self._first, cast(Output, output)

    def abort(self) -> None:
        """End what has not ended, at any moment, as often as wanted; its pages return with the next step."""
        if self._open:
            self._abort(list(self._open))

    def put(self, result: StepOutput) -> None:
        """Add a result; called in the stream's event loop."""
        self._results.put_nowait(result)


class ResultRouter:
    """Delivers results from any thread to the streams that await them.

    One call of an event loop for all that is sent together. Operations on the dict are atomic, so no lock is needed.
    """

    def __init__(self) -> None:
        self._streams: dict[int, ResultStream[Any]] = {}  # by key, until the last result was sent

    def register(self, keys: range, stream: ResultStream[Any]) -> None:
        """Send results of these requests to `stream`."""
        self._streams.update(dict.fromkeys(keys, stream))

    def send(self, results: list[StepOutput]) -> list[int]:
        """Deliver results; returns the keys of requests whose event loop is closed. Drops those of aborted requests."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[ResultStream[Any], StepOutput]]] = {}
        for result in results:
            stream = self._streams.pop(result.key, None) if result.is_last else self._streams.get(result.key)
            if stream is not None:
                by_loop.setdefault(stream.loop, []).append((stream, result))
        unreached: list[int] = []
        for loop, items in by_loop.items():
            try:
                loop.call_soon_threadsafe(_put, items)
            except RuntimeError:
                unreached += [result.key for _, result in items]
        for key in unreached:
            self._streams.pop(key, None)
        return unreached


def _put(items: list[tuple[ResultStream[Any], StepOutput]]) -> None:
    for stream, result in items:
        stream.put(result)
