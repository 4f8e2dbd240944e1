"""Host: `Engine`, the step loop: plans a step while the one before runs, then commits that one; tokens only."""

from collections.abc import Iterator
from typing import Any

from jaxserve.core.deltas import TokenDeltas, no_deltas
from jaxserve.core.errors import EngineDeadError
from jaxserve.core.plan import Plan
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.runner.base import Runner
from jaxserve.scheduler.scheduler import Scheduler


class Engine:
    """A scheduler and a runner, and the one step that is in flight between calls of `step`.

    A request that cannot be served raises `RequestError` from `add` and harms no other. If the runner fails, all
    requests end with finish reason "error", the call raises `EngineDeadError`, and so does every later one.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner):
        self.scheduler = scheduler
        self.runner = runner
        self._in_flight: tuple[Plan, Any] | None = None
        self._is_dead = False

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def has_work(self) -> bool:
        """Whether `step` must be called: a request has not ended, or a step is in flight."""
        return self.scheduler.has_work or self._in_flight is not None

    def add(self, request: Request) -> list[Sequence]:
        """Queue a request; its sequences, one a sample, grow and end by the calls of `step`."""
        self._check_alive()
        return self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """End all samples of a request; at any moment, and as often as wanted."""
        self.scheduler.abort(request_id)

    def finish(self, sequence_id: int, reason: str, keep_tokens: int, stop_reason: int | str | None = None) -> None:
        """End a sequence in whose text an end was found, after `keep_tokens` generated tokens."""
        self.scheduler.finish(sequence_id, reason, keep_tokens, stop_reason)

    def step(self) -> TokenDeltas:
        """Start the next step, then wait for the one before and return what it produced.

        When most sequences cannot be planned before their last token is known, wait first.
        """
        self._check_alive()
        try:
            if self.scheduler.is_mostly_synchronous:
                deltas = self._finish_step(self._take())
                self._start_step()
            else:
                before = self._take()
                self._start_step()
                deltas = self._finish_step(before)
        except Exception as error:
            self._die()
            raise EngineDeadError(f"the engine loop has ended: {error}") from error
        return deltas

    def drain(self) -> Iterator[TokenDeltas]:
        """Steps until nothing is left to do."""
        while self.has_work:
            yield self.step()

    def _take(self) -> tuple[Plan, Any] | None:
        before, self._in_flight = self._in_flight, None
        return before

    def _start_step(self) -> None:
        plan = self.scheduler.schedule()
        if plan is not None:
            self._in_flight = plan, self.runner.submit(plan)
        elif self.scheduler.has_work and self.scheduler.num_in_flight == 0:
            raise RuntimeError("requests are waiting, nothing is in flight, and nothing can be scheduled")

    def _finish_step(self, step: tuple[Plan, Any] | None) -> TokenDeltas:
        if step is None:
            return no_deltas()
        plan, ticket = step
        return self.scheduler.commit(plan, self.runner.collect(ticket))

    def _die(self) -> None:
        self._is_dead = True
        self._in_flight = None
        self.scheduler.abort_all("error")

    def _check_alive(self) -> None:
        if self._is_dead:
            raise EngineDeadError("the engine loop has ended; build a new engine")
