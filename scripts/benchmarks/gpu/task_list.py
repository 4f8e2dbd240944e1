"""Tasks of the benchmark, and the journal: a line when a task starts and a line when it ends, so that what a process
has done outlives it."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """table: of the report, in which its figures stand."""

    name: str
    table: str
    run: Callable[[], Record]
    """Returns the figures; raises NotImplementedError(reason) if it cannot run here."""


@dataclass
class Results:
    """By table: the figures, and the tasks without any and why."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)
    """By part."""
    failed: dict[str, list[str]] = field(default_factory=dict)
    """By table: the tasks that raised an error, or ended their process or the device."""

    def of(self, table: str) -> list[Record]:
        return self.records.get(table, [])


class Journal:
    """The lines of a file; those of an earlier run among them."""

    def __init__(self, file: Path):
        self._file = file

    def starts(self, part: str, task: str, table: str) -> None:
        self._add(part=part, starts=task, table=table)

    def ends(
        self, part: str, task: str, table: str, took_s: float, outcome: Record | str, *, is_failed: bool = False
    ) -> None:
        """outcome: the figures, or the reason why there are none. is_failed: see `Results`."""
        key = "reason" if isinstance(outcome, str) else "record"
        self._add(part=part, ends=task, table=table, took_s=took_s, is_failed=is_failed, **{key: outcome})

    def does_not_start(self, part: str, reason: str) -> None:
        """Until the part does: no task of it has ended."""
        self._add(part=part, does_not_start=reason)

    def completes(self, part: str) -> None:
        self._add(part=part, completes=True)

    def describes(self, about: dict[str, str]) -> None:
        """Hardware and software of the run."""
        self._add(about=about)

    @property
    def about(self) -> dict[str, str]:
        return next((line["about"] for line in reversed(self.lines()) if "about" in line), {})

    @property
    def num_bytes(self) -> int:
        """Of the file: it grows with each line."""
        return self._file.stat().st_size if self._file.exists() else 0

    def lines(self) -> list[Record]:
        """All lines but those that a killed process has cut off."""
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        found: list[Record] = []
        for line in text.splitlines():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def of(self, part: str) -> list[Record]:
        return [line for line in self.lines() if line.get("part") == part]

    def done(self, part: str) -> set[str]:
        """The tasks that have ended."""
        return {line["ends"] for line in self.of(part) if "ends" in line}

    def is_complete(self, part: str) -> bool:
        return any("completes" in line for line in self.of(part))

    def results(self) -> Results:
        results = Results()
        unstarted: dict[str, str] = {}
        for line in self.lines():
            if "does_not_start" in line:
                unstarted[line["part"]] = line["does_not_start"]
            elif "starts" in line or "completes" in line:
                unstarted.pop(line["part"], None)
            if "record" in line:
                results.records.setdefault(line["table"], []).append(line["record"])
            elif "reason" in line:
                results.missing.setdefault(line["table"], {})[line["ends"]] = line["reason"]
            if "ends" in line:
                results.took_s[line["part"]] = results.took_s.get(line["part"], 0.0) + line["took_s"]
                if line["is_failed"]:
                    results.failed.setdefault(line["table"], []).append(line["ends"])
        for part, reason in unstarted.items():
            results.missing.setdefault(part, {})["start"] = reason
            results.failed.setdefault(part, []).append("start")
        return results

    def _add(self, **line: Any) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def reason_of(error: Exception) -> str:
    """The error in one line; without its type for NotImplementedError, whose message is the reason."""
    line = str(error).strip().partition("\n")[0][:240]
    return line if isinstance(error, NotImplementedError) and line else f"{type(error).__name__}: {line}"
