"""Parts of the benchmark as lists of tasks, and the loop that runs them: it times, reports and isolates each."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_TIME = "not run: time"
SHARES = {"checks": 0.25, "tune": 0.2, "ceilings": 0.05, "attention": 0.25, "engine": 0.25}
"""Shares of the minutes, in the order of the parts; time left over goes to the next parts."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    name: str
    run: Callable[[], Record]
    """Its figures. Raises NotImplementedError(reason) where it cannot run here, OutOfTime where it had to stop."""


class OutOfTime(Exception):
    """The time of a task's part ended while the task ran."""


@dataclass
class Results:
    """By part: what was measured, what was not and why, and how long the part took."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    """Part, name, reason."""
    took_s: dict[str, float] = field(default_factory=dict)

    def of(self, part: str) -> list[Record]:
        return self.records.get(part, [])


class Budget:
    """When each part must have ended."""

    def __init__(self, minutes: float, parts: Sequence[str], clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        all_shares, ends, share = sum(SHARES[part] for part in parts), {}, 0.0
        for part in parts:
            share += SHARES[part] / all_shares
            ends[part] = clock() + 60 * minutes * share
        self._ends = ends

    def is_over(self, part: str) -> bool:
        return self._clock() >= self._ends[part]


def run_part(part: str, tasks: Iterable[Task], budget: Budget, results: Results, say: Callable[[str], None]) -> None:
    """Runs tasks until the part's time is over; names the others, with reasons, in `results.missing`.

    A device out of memory, a rival that does not compile: whatever a task raises is its reason.
    """
    records = results.records.setdefault(part, [])
    missing = results.missing.setdefault(part, {})
    started = time.monotonic()
    for task in tasks:
        if budget.is_over(part):
            missing[task.name] = NO_TIME
            continue
        task_started = time.monotonic()
        try:
            records.append(task.run())
            outcome = ""
        except OutOfTime:
            outcome = missing[task.name] = NO_TIME
        except Exception as error:
            outcome = missing[task.name] = reason_of(error)
        say(f"{part}: {task.name}, {time.monotonic() - task_started:.1f} s{outcome and ': '}{outcome}")
    results.took_s[part] = time.monotonic() - started


def reason_of(error: Exception) -> str:
    """The reason in one line, without the kind of error where that adds nothing."""
    line = str(error).strip().partition("\n")[0][:240]
    return line if isinstance(error, NotImplementedError) and line else f"{type(error).__name__}: {line}"
