"""Host: `ErrorTally`: the failed lines of a batch: how many of each kind, and the first ones in full."""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from typing import Any

FIRST = 5  # errors that are shown in full
MAX_KINDS = 20  # an error may name any field, so that kinds could grow with the file


class ErrorTally:
    """num_failed: results that are errors, of this run and earlier ones."""

    def __init__(self) -> None:
        self.num_failed = 0
        self._first: list[tuple[int, str]] = []  # by line number
        self._kinds = Counter[str]()

    def add(self, number: int, result: dict[str, Any]) -> None:
        """Counts the result of a line if it is an error."""
        error = result["error"]
        if error is None:
            return
        self.num_failed += 1
        name = result.get("custom_id")
        insort(self._first, (number, f"line {number}{f' ({name})' if name else ''}: {error.get('message')}"))
        del self._first[FIRST:]
        status, code, param = result["response"]["status_code"], error.get("code"), error.get("param")
        reason = error.get("type") if code in (None, status) else code
        kind = f"{status} {reason}{f', {param}' if param else ''}"
        self._kinds[kind if kind in self._kinds or len(self._kinds) < MAX_KINDS else "others"] += 1

    def report(self) -> Iterator[str]:
        """Lines for the end of a run; none where nothing failed."""
        if self.num_failed:
            yield f"the first errors of {self.num_failed}:"
            yield from (f"  {text}" for _, text in self._first)
            yield "errors by kind:"
            yield from (f"  {count:>8}  {kind}" for kind, count in self._kinds.most_common())
