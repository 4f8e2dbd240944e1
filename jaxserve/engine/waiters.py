"""Host: `Waiter`, a request's end in the event loop that waits for it, and how a thread sends to many of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxserve.core.outputs import EmbeddingRequestOutput, RequestOutput
from jaxserve.engine.job import Job
from jaxserve.engine.results import Reader

Output = RequestOutput | EmbeddingRequestOutput
Item = Output | Exception


def read_results(job: Job) -> Callable[[], RequestOutput | None]:
    """What generated tokens make."""
    return Reader(job).take


@dataclass(slots=True, eq=False)
class Waiter:
    """Who waits for one request, in the event loop that it was made in: for each piece, or for the whole at the end.

    read: makes of the job a function that gives what is new of it each time, None where nothing is.
    """

    wants_pieces: bool
    read: Callable[[Job], Callable[[], Output | None]] = read_results
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    items: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    job: Job | None = None  # the driver's, as is the next
    take_new: Callable[[], Output | None] | None = None
    end: Exception | None = None  # what there is to be told after the last item

    async def next(self) -> Any:
        """The next output. After the last one, and after an exception, it raises at once."""
        if self.end is not None:
            raise self.end
        item = await self.items.get()
        if isinstance(item, Exception):
            self.end = item
            raise item
        if item.finished:
            self.end = RuntimeError("the request has ended, and all of it has been told")
        return item

    def begin(self, job: Job) -> None:
        self.job, self.take_new = job, self.read(job)

    def take(self) -> Item | None:
        """What is to be sent after a step in which the job has moved; what goes wrong here goes wrong for it alone."""
        assert self.job is not None
        assert self.take_new is not None
        try:
            return self.take_new() if self.wants_pieces or self.job.is_finished else None
        except Exception as error:
            return error


def send(items: list[tuple[Waiter, Item]]) -> list[Waiter]:
    """Hand items to their waiters, in one call a loop; returns those whose loop is closed and waits no longer."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Item]]] = {}
    for waiter, item in items:
        by_loop.setdefault(waiter.loop, []).append((waiter, item))
    unreached = []
    for loop, its_items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put, its_items)
        except RuntimeError:
            unreached += [waiter for waiter, _ in its_items]
    return unreached


def _put(items: list[tuple[Waiter, Item]]) -> None:
    for waiter, item in items:
        waiter.items.put_nowait(item)
