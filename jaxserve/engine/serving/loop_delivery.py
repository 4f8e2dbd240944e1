"""Host: `ResultReceiver`: delivers results from the engine thread to the event loop that awaits them."""

import asyncio
from collections.abc import Callable
from typing import Any

from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.engine.outputs.output_stream import OutputStream
from jaxserve.engine.outputs.request_state import RequestState

Output = RequestOutput | EmbeddingRequestOutput
Item = Output | Exception
Read = Callable[[RequestState], Callable[[], Output | None]]
ALL_TOLD = "the request has ended, and all of it has been told"


def read_results(job: RequestState) -> Callable[[], RequestOutput | None]:
    """What generated tokens make."""
    return OutputStream(job).take


class ResultReceiver:
    """Who waits for the `number`-th of an inbox's requests: for each piece, or for the whole at the end.

    read: makes of the job a function that gives what is new of it each time, None where nothing is. end: what there is
    to be told after the last item.
    """

    __slots__ = ("_read", "_take_new", "end", "inbox", "job", "number", "wants_pieces")

    def __init__(self, inbox: "ResultQueue", number: int, wants_pieces: bool, read: Read):
        self.inbox, self.number, self.wants_pieces, self._read = inbox, number, wants_pieces, read
        self.end: Exception | None = None
        self.job: RequestState | None = None  # the driver's, as is the next
        self._take_new: Callable[[], Output | None] | None = None

    def begin(self, job: RequestState) -> None:
        self.job, self._take_new = job, self._read(job)

    def take(self) -> Item | None:
        """What is to be sent after a step in which the job has moved; what goes wrong here goes wrong for it alone."""
        assert self.job is not None
        assert self._take_new is not None
        try:
            return self._take_new() if self.wants_pieces or self.job.is_finished else None
        except Exception as error:
            return error


class ResultQueue:
    """Where results of requests that were let in together arrive, in the event loop that it was made in.

    num_open: requests of which there is more to come.
    """

    def __init__(self, count: int, wants_pieces: bool, read: Read = read_results):
        self.loop = asyncio.get_running_loop()
        self.waiters = [ResultReceiver(self, number, wants_pieces, read) for number in range(count)]
        self.num_open = count
        self._items: asyncio.Queue[tuple[ResultReceiver, Item]] = asyncio.Queue()
        self._end: Exception = RuntimeError(ALL_TOLD)

    async def next(self) -> tuple[int, Any]:
        """The next output of any request, and its number. What one of them raises is raised; once all have ended it
        raises at once."""
        if not self.num_open:
            raise self._end
        waiter, item = await self._items.get()
        if isinstance(item, Exception):
            self._close(waiter, item)
            raise item
        if item.finished:
            self._close(waiter, RuntimeError(ALL_TOLD))
        return waiter.number, item

    def put(self, waiter: ResultReceiver, item: Item) -> None:
        self._items.put_nowait((waiter, item))

    def _close(self, waiter: ResultReceiver, end: Exception) -> None:
        if waiter.end is None:
            self.num_open -= 1
            waiter.end = self._end = end


def send(items: list[tuple[ResultReceiver, Item]]) -> list[ResultReceiver]:
    """Hand items to their inboxes, in one call a loop; returns those whose loop is closed and waits no longer."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[ResultReceiver, Item]]] = {}
    for waiter, item in items:
        by_loop.setdefault(waiter.inbox.loop, []).append((waiter, item))
    unreached = []
    for loop, its_items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put, its_items)
        except RuntimeError:
            unreached += [waiter for waiter, _ in its_items]
    return unreached


def _put(items: list[tuple[ResultReceiver, Item]]) -> None:
    for waiter, item in items:
        waiter.inbox.put(waiter, item)
