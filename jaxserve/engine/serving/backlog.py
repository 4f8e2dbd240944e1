"""Host: `Backlog`: admitted requests outside the queue: a call with many prompts queues them one after the other."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.engine.serving.messages import Add
from jaxserve.scheduler.queue_limits import QueueLoad, largest_cost


class BacklogCall:
    """A call with requests outside the queue.

    held: those, by key, in the order in which they join. place: samples and tokens that the call may have in the queue
    at any time. queued: sequences that have joined the queue and had no slot when the backlog last looked.
    """

    def __init__(self, add: Add):
        self.add, self.place = add, largest_cost(add.requests)
        by_key = zip(add.keys, add.requests, strict=True)
        self.held: dict[int, Request] = dict(sorted(by_key, key=lambda item: item[1].scheduling.priority))
        self.queued: list[Sequence] = []
        self._late_s = min(map(_limit_s, add.requests))  # no request is late before

    @property
    def has_free_place(self) -> bool:
        """Whether every sample that was queued has had a slot."""
        self.queued = [sequence for sequence in self.queued if not (sequence.has_started or sequence.is_finished)]
        return not self.queued

    @property
    def reserved(self) -> tuple[int, int]:
        """Samples and tokens of the place that are not in the queue now."""
        num_samples, num_tokens = self.place
        num_queued_tokens = sum(sequence.num_tokens for sequence in self.queued)
        return max(0, num_samples - len(self.queued)), max(0, num_tokens - num_queued_tokens)

    def late(self, now_s: float) -> list[int]:
        """The keys of requests whose time is up."""
        if now_s < self._late_s:
            return []
        limits = {key: _limit_s(request) for key, request in self.held.items()}
        self._late_s = min((limit_s for limit_s in limits.values() if limit_s > now_s), default=math.inf)
        return [key for key, limit_s in limits.items() if limit_s <= now_s]


class Held(NamedTuple):
    """A request that joins the queue now."""

    key: int
    request: Request
    call: BacklogCall


class Backlog:
    """The requests of admitted calls that have not joined the scheduler's queue.

    A call has a place in the queue for the largest of its requests. Its next request joins when all samples of the one
    before have had a slot. So a thousand prompts take no more of the queue than one, and others are served in between.
    Free slots for which no request is queued go to the calls in turn.
    """

    def __init__(self) -> None:
        self._by_key: dict[int, BacklogCall] = {}  # of each request outside the queue
        self._turns: deque[BacklogCall] = deque()  # calls with such requests

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, add: Add) -> None:
        """All requests of a call."""
        call = BacklogCall(add)
        self._by_key.update(dict.fromkeys(add.keys, call))
        self._turns.append(call)

    def due(self, now_s: float) -> Iterator[Held]:
        """Requests that join the queue in any case: the next one of each call whose place is free, and those whose time
        is up, which end there. The caller adds their sequences to `queued` before it goes on."""
        for call in list(self._turns):
            for key in call.late(now_s):
                yield self._take(key, now_s)
            while call.held and call.has_free_place:
                yield self._take(next(iter(call.held)), now_s)

    def next(self) -> tuple[int, Request] | None:
        """The key of the next request of the call whose turn it is, and the request; None where none is held."""
        return next(iter(self._turns[0].held.items())) if self._turns else None

    def take_next(self, now_s: float) -> Held:
        """Let `next` join the queue; the turn goes to the next call."""
        call = self._turns[0]
        self._turns.rotate(-1)
        return self._take(next(iter(call.held)), now_s)

    def remove(self, key: int) -> Request | None:
        """Take a request out for good; None where it is not held."""
        call = self._by_key.pop(key, None)
        if call is None:
            return None
        request = call.held.pop(key)
        if not call.held:
            self._turns.remove(call)
        return request

    def keys(self) -> list[int]:
        """The keys of all requests that are held."""
        return list(self._by_key)

    def add_to(self, load: QueueLoad) -> QueueLoad:
        """The load with the reserved places as waiting, and the other samples that are held."""
        places = [call.reserved for call in self._turns]
        num_samples, num_tokens = sum(count for count, _ in places), sum(count for _, count in places)
        num_held = sum(len(call.held) * call.place[0] for call in self._turns) - num_samples
        return replace(load.with_more(num_samples, num_tokens), num_held=num_held)

    def _take(self, key: int, now_s: float) -> Held:
        call, request = self._by_key[key], self.remove(key)
        assert request is not None
        return Held(key, replace(request, queued_s=now_s) if len(call.add.keys) > 1 else request, call)


def _limit_s(request: Request) -> float:
    """When the request is late unless it has started or ended."""
    limits = (request.scheduling.queue_timeout_s, request.scheduling.deadline_s)
    return request.arrival_s + min((limit for limit in limits if limit is not None), default=math.inf)
