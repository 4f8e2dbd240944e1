"""The benchmark's parts as lists of tasks, and the loop that runs, times and reports each task."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

NO_TIME = "not run: time"
SHARES = {"checks": 0.25, "tune": 0.2, "ceilings": 0.05, "attention": 0.25, "engine": 0.25}
"""Shares of the time limit, in the order of the parts; unused time goes to the next parts."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    name: str
    run: Callable[[], Record]
    """Returns the figures. Raises NotImplementedError(reason) if it cannot run here, OutOfTime if it had to stop."""


class OutOfTime(Exception):
    """The time of a task's part ended while the task ran."""


@dataclass
class Results:
    """By part: the records, the tasks without one and why, and the part's duration."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    """Part, name, reason."""
    took_s: dict[str, float] = field(default_factory=dict)

    def of(self, part: str) -> list[Record]:
        return self.records.get(part, [])


class Budget:
    """The time at which each part must end."""

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
    """Runs tasks until the part's time is over; tasks without figures are in `results.missing`, with the reason.

    Any error of a task is its reason: a device out of memory, another library's kernel that does not compile.
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
    """The error in one line; without its type for NotImplementedError, whose message is the reason."""
    line = str(error).strip().partition("\n")[0][:240]
    return line if isinstance(error, NotImplementedError) and line else f"{type(error).__name__}: {line}"
