"""Sends fuzz cases to a server concurrently, and checks each response against the laws."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import httpx2

from tests.support.serving.answer_laws import faults
from tests.support.serving.body_fuzz import Case

HEADERS = {"Content-Type": "application/json"}


@dataclass
class Fuzzed:
    """statuses: of the responses, by path. faults: violations, in words."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def num_accepted(self) -> int:
        return sum(count for (_, status), count in self.statuses.items() if status == 200)


def fuzz(
    url: str, wanted: Iterable[Case], *, num_workers: int = 16, on_progress: Callable[[int], None] = lambda _: None
) -> Fuzzed:
    """on_progress: called with the number of responses so far."""
    return asyncio.run(_fuzz(url, iter(wanted), num_workers, on_progress))


async def _fuzz(url: str, wanted: Iterator[Case], num_workers: int, on_progress: Callable[[int], None]) -> Fuzzed:
    found = Fuzzed()

    async def work(client: httpx2.AsyncClient) -> None:
        for case in wanted:
            answer = await client.post(case.path, content=case.raw, headers=HEADERS)
            found.statuses[case.path, answer.status_code] += 1
            found.faults += faults(case, answer.status_code, answer.headers, answer.text)
            on_progress(found.statuses.total())

    limits = httpx2.Limits(max_connections=num_workers)
    async with httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        await asyncio.gather(*(work(client) for _ in range(num_workers)))
    return found
