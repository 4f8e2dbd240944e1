"""Host: `run_load`: requests sent when they are due, as many at once as may be, until all have been answered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from jaxserve.bench.serving.client.reply import RequestResult
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest

Send = Callable[[BenchRequest], Awaitable[RequestResult]]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of a run. replies: by request; None: it was not sent, or not answered when the run was interrupted."""

    start_s: float
    end_s: float
    replies: list[RequestResult | None]
    num_sent: int

    @property
    def is_interrupted(self) -> bool:
        return None in self.replies


async def run_load(
    requests: Sequence[BenchRequest],
    times_s: Sequence[float],
    send: Send,
    *,
    max_concurrency: int | None,
    clock: Callable[[], float],
    done: Callable[[RequestResult], object] = lambda reply: None,
) -> LoadResult:
    """Send request i `times_s[i]` seconds after the start, or, if `max_concurrency` are under way then, when one of
    them has ended; always in order. times_s: not falling. done: gets each reply at once.

    Cancelling the task that awaits this ends the run: it returns with the replies that there are.
    """
    replies: list[RequestResult | None] = [None] * len(requests)
    slots = None if max_concurrency is None else asyncio.Semaphore(max_concurrency)
    num_sent, start_s = 0, clock()

    async def serve(i: int) -> None:
        try:
            reply = replies[i] = await send(requests[i])
        finally:
            if slots is not None:
                slots.release()
        done(reply)

    try:
        async with asyncio.TaskGroup() as under_way:
            for i, due_s in enumerate(times_s):
                if (wait_s := start_s + due_s - clock()) > 0:
                    await asyncio.sleep(wait_s)
                if slots is not None:
                    await slots.acquire()
                under_way.create_task(serve(i))
                num_sent += 1
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
    return LoadResult(start_s, clock(), replies, num_sent)
