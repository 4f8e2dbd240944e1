"""Host: `run_load`: sends each request at its due time, within the concurrency limit, until all are answered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from jaxserve.bench.serving.client.request_result import RequestResult
from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest

Send = Callable[[BenchRequest], Awaitable[RequestResult]]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Results of a run. results: by request; None where it was not sent, or not answered before an interrupt."""

    start_s: float
    end_s: float
    results: list[RequestResult | None]
    num_sent: int

    @property
    def is_interrupted(self) -> bool:
        return None in self.results


async def run_load(
    requests: Sequence[BenchRequest],
    times_s: Sequence[float],
    send: Send,
    *,
    max_concurrency: int | None,
    clock: Callable[[], float],
    done: Callable[[RequestResult], object] = lambda result: None,
) -> LoadResult:
    """Sends request i `times_s[i]` seconds after the start, in order; if `max_concurrency` requests are in flight then,
    as soon as one of them ends. times_s: ascending. done: is called with each result when it arrives.

    Cancelling the task that awaits this ends the run: it returns the results so far.
    """
    results: list[RequestResult | None] = [None] * len(requests)
    free_places = None if max_concurrency is None else asyncio.Semaphore(max_concurrency)
    num_sent, start_s = 0, clock()

    async def serve(i: int) -> None:
        try:
            result = results[i] = await send(requests[i])
        finally:
            if free_places is not None:
                free_places.release()
        done(result)

    try:
        async with asyncio.TaskGroup() as in_flight:
            for i, due_s in enumerate(times_s):
                if (wait_s := start_s + due_s - clock()) > 0:
                    await asyncio.sleep(wait_s)
                if free_places is not None:
                    await free_places.acquire()
                in_flight.create_task(serve(i))
                num_sent += 1
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
    return LoadResult(start_s, clock(), results, num_sent)
