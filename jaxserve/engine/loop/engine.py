"""Host: `Engine`: the step loop: plans a step while the one before runs, then commits that one; tokens only."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jaxserve.core.errors import EngineDeadError
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence
from jaxserve.core.step_plan import StepPlan
from jaxserve.core.token_deltas import TokenDeltas, no_deltas
from jaxserve.engine.loop.multi_step_budget import MultiStepBudget
from jaxserve.engine.loop.step_stats import Observer, StepMoments, StepRecord
from jaxserve.runner.runner_protocol import StepRunner
from jaxserve.scheduler.scheduler import Scheduler

PREPARING_PAUSE_S = 0.001  # between looks at what sequences wait for (grammars, adapters), where all of them do


@dataclass(slots=True)
class _Step:
    """A planned step; no ticket yet while it is being submitted. is_drawn: its late rows too, if it has any."""

    plan: StepPlan
    moments: StepMoments
    ticket: Any = None
    is_drawn: bool = False


class Engine:
    """A scheduler and a runner, and the one step that is in flight between calls of `step`.

    A request that `add` refuses raises `RequestError` and affects no other. If the runner fails, all requests end with
    finish reason "error", the call raises `EngineDeadError`, and so does every later one. An interrupt (Ctrl-C) leaves
    the engine usable: planned steps stay queued until they are committed.

    max_rounds: most tokens that a row may draw in one step while the queue is empty. max_hidden_rounds: the same in
    steps with late rows. is_overlapped: a step is planned while the one before runs; otherwise after its commit. The
    tokens do not depend on any of these. clock: in seconds, by which requests arrive and become late. observer: called
    with the record of each step once it is committed; None costs nothing but reading the clock.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        max_rounds: int = 1,
        max_hidden_rounds: int = 1,
        is_overlapped: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.scheduler, self.clock = scheduler, clock
        self.runner = runner
        self.multi_step = MultiStepBudget(max_rounds, max_hidden_rounds)
        self.observer: Observer | None = None
        self.is_overlapped = is_overlapped
        self._steps: deque[_Step] = deque()
        self._late: list[Sequence] = []  # ended, and not yet returned by `step`: an interrupt came between
        self._collected_s = 0.0  # of the last step
        self._is_dead = False

    @property
    def has_work(self) -> bool:
        """Whether `step` must be called: a request has not ended, or a step is in flight."""
        return self.scheduler.has_work or bool(self._steps) or bool(self._late)

    def live(self) -> Scheduler:
        """The scheduler, to check and add requests; raises `EngineDeadError` if the engine is dead."""
        self._check_alive()
        return self.scheduler

    def add(self, request: Request) -> list[Sequence]:
        """Queue an admitted request; its sequences, one per sample, grow and end by the calls of `step`."""
        return self.live().add(request)

    def step(self) -> TokenDeltas:
        """End late sequences, start the next step, then wait for the one before; returns the tokens and ends.

        Where the host chooses most tokens, waits first. Late rows of the step that was started draw once the one before
        is committed: the device computes their forward pass meanwhile.
        """
        self._check_alive()
        try:
            self._late += self.scheduler.expire(self.clock())
            deltas = self._step().with_ended(self._late)
            self._late = []
            return deltas
        except Exception as error:
            self._die()
            raise EngineDeadError(f"the engine loop has ended: {error}") from error

    def _step(self) -> TokenDeltas:
        self._resume()
        if not self.is_overlapped or self.scheduler.is_mostly_beams or len(self._steps) > 1:
            deltas = self._finish_step()
            self._start_step()
            return deltas
        is_behind = bool(self._steps)
        self._start_step()
        return self._finish_step() if is_behind else no_deltas()

    def drain(self) -> Iterator[TokenDeltas]:
        """Steps until nothing is left to do."""
        while self.has_work:
            yield self.step()

    def _resume(self) -> None:
        """Do what an interrupt has cut off."""
        while len(self._steps) > self.scheduler.num_in_flight:
            self._steps.popleft()  # it came between a step's commit and its removal
        for step in self._steps:
            if step.ticket is None:  # between planning and submission
                self._submit(step)
            self._draw_late_rows()

    def _start_step(self) -> None:
        planning_s = time.monotonic()
        plan = self.scheduler.schedule(self.multi_step.num_rounds, self.multi_step.hidden.num_rounds)
        if plan is not None:
            self.multi_step.hidden.plan(plan.bucket)
            self._steps.append(_Step(plan, StepMoments(planning_s, time.monotonic())))
            self._submit(self._steps[-1])
            if len(self._steps) == 1:
                self._draw_late_rows()
        elif self.scheduler.is_preparing:
            time.sleep(PREPARING_PAUSE_S)
        elif self.scheduler.has_work and not self._steps and not self.scheduler.waits_for_host:
            raise RuntimeError("requests are waiting, nothing is in flight, and nothing can be scheduled")

    def _submit(self, step: _Step) -> None:
        step.moments.submitting_s = time.monotonic()
        step.ticket = self.runner.submit(step.plan)
        step.moments.submitted_s = time.monotonic()

    def _draw_late_rows(self) -> None:
        """Draw the tokens of the oldest step's late rows, if it has any and has not drawn them.

        Where these have drafts, wait for its forward pass: what may follow a draft depends on it.
        """
        if self._steps and len((step := self._steps[0]).plan.late_rows) and not step.is_drawn:
            drafts = self.runner.late_drafts(step.ticket) if step.plan.has_late_drafts else None
            late = self.scheduler.late_draw(step.plan, drafts)
            if step.plan.bucket.is_decode and step.moments.submitted_s < self._collected_s:
                is_hidden = self.runner.has_run(step.ticket)
                self.multi_step.hidden.observe(step.plan.bucket, step.plan.num_rounds, is_hidden=is_hidden)
            step.ticket = self.runner.draw(step.ticket, late)
            step.is_drawn = True

    def _finish_step(self) -> TokenDeltas:
        """Commit the oldest step."""
        if not self._steps:
            return no_deltas()
        step, moments = self._steps[0], self._steps[0].moments
        moments.collecting_s = time.monotonic()
        outcome = self.runner.collect(step.ticket)
        moments.previous_s, self._collected_s = self._collected_s, time.monotonic()
        moments.collected_s = self._collected_s
        self.multi_step.observe(outcome.num_rounds, moments.device_s)
        deltas = self.scheduler.commit(step.plan, outcome)
        self.scheduler.observe(step.plan, outcome, moments.device_s)
        self._steps.popleft()
        moments.committed_s = time.monotonic()
        self._draw_late_rows()
        if self.observer is not None:
            self.observer(StepRecord.of(step.plan, outcome, moments))
        return deltas

    def _die(self) -> None:
        self._is_dead = True
        self._steps.clear()
        self.scheduler.abort_all("error")

    def _check_alive(self) -> None:
        if self._is_dead:
            raise EngineDeadError("the engine loop has ended; build a new engine")
