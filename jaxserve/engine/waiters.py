"""Host: `Waiter`, a request's end in the event loop that waits for it, and how a thread sends to many of them."""

import asyncio
from dataclasses import dataclass, field

from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.job import Job
from jaxserve.engine.results import Reader

Item = RequestOutput | Exception


@dataclass(slots=True, eq=False)
class Waiter:
    """Who waits for one request, in the event loop that it was made in: for each piece, or for the whole at the end."""

    wants_pieces: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    items: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    job: Job | None = None  # the driver's, as is the reader
    reader: Reader | None = None

    async def next(self) -> RequestOutput:
        item = await self.items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def take(self) -> RequestOutput | None:
        """What is to be sent after a step in which the job has moved."""
        assert self.job is not None
        assert self.reader is not None
        return self.reader.take() if self.wants_pieces or self.job.is_finished else None


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
