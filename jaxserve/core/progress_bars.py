"""Host: progress on standard error: a tqdm bar on a terminal, a few plain lines in a log file."""

import sys
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

FIRST_LINE_S = 60.0
RATE_S = 2.0


class ProgressLines:
    """The counterpart of a bar in a log file: a line after 1, 2, 4, 8 … minutes and one at the end."""

    def __init__(self, *, desc: str, unit: str, total: int | None = None, unit_scale: bool = False, **_: Any) -> None:
        self.n, self.total = 0, total
        self._desc, self._unit, self._is_bytes = desc, unit, unit_scale
        self._totals = ""
        self._started_s = time.monotonic()
        self._next_s = FIRST_LINE_S

    def update(self, count: int, totals: str) -> None:
        self.n += count
        self._totals = totals
        elapsed_s = time.monotonic() - self._started_s
        if elapsed_s >= self._next_s:
            self._next_s = 2 * elapsed_s
            self._print(elapsed_s)

    def close(self) -> None:
        if self.n:
            self._print(time.monotonic() - self._started_s)

    def _print(self, elapsed_s: float) -> None:
        total = self.n if self.total is None else self.total
        count = f"{self.n / 1e6:.1f} of {total / 1e6:.1f} MB" if self._is_bytes else f"{self.n}/{total} {self._unit}s"
        totals = f", {self._totals}" if self._totals else ""
        print(f"{self._desc}: {count}{totals} in {elapsed_s:.1f} s", file=sys.stderr, flush=True)


class Bar:
    """A progress bar, or nothing when it is switched off. desc: the phase. unit: the noun of what is counted."""

    def __init__(self, is_shown: bool, *, desc: str, unit: str, total: int | None = None, **options: Any):
        self._is_shown = is_shown
        self._options: dict[str, Any] = {"desc": desc, "unit": unit, "total": total, **options}
        self._bar: Any = None
        self._lines: ProgressLines | None = None

    def __enter__(self) -> Self:
        if self._is_shown and sys.stderr.isatty():
            from tqdm import tqdm

            # miniters=0: bars move with tokens and time too, not only when a sample ends.
            self._bar = tqdm(dynamic_ncols=True, miniters=0, **self._options)
        elif self._is_shown:
            self._lines = ProgressLines(**self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._lines is not None:
            self._lines.close()

    def _advance(self, count: int, totals: str = "", moment: str = "") -> None:
        """Counts; `totals` describes the whole call, `moment` the last step, which only a bar shows."""
        if self._bar is not None:
            if totals or moment:
                self._bar.set_postfix_str(", ".join(filter(None, (totals, moment))), refresh=False)
            self._bar.update(count)
        if self._lines is not None:
            self._lines.update(count, totals)


class LoadBar(Bar):
    """Bytes of weights read or written."""

    def __init__(self, is_shown: bool, desc: str = "Loading weights"):
        super().__init__(is_shown, desc=desc, unit="B", unit_scale=True, unit_divisor=1024)
        self._done = 0

    def update(self, done: int, total: int) -> None:
        for bar in (self._bar, self._lines):
            if bar is not None:
                bar.total = total
        self._advance(done - self._done)
        self._done = done


class CompileBar(Bar):
    """Programs compiled, with the name of the last one."""

    def __init__(self, is_shown: bool, total: int):
        super().__init__(is_shown, desc="Compiling", unit="program", total=total)

    def update(self, name: str) -> None:
        self._advance(1, moment=name)


class GenerateBar(Bar):
    """Samples finished, or other items of many tokens each, with the token rate of the last `RATE_S` seconds."""

    def __init__(self, is_shown: bool, total: int, *, desc: str = "Generating", unit: str = "sample"):
        super().__init__(is_shown, desc=desc, unit=unit, total=total)
        self._num_tokens = 0
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])  # (time, tokens until then)

    def update(self, num_finished: int, num_tokens: int) -> None:
        now = time.monotonic()
        self._num_tokens += num_tokens
        while len(self._recent) > 1 and self._recent[1][0] < now - RATE_S:
            self._recent.popleft()
        since_s, since_tokens = self._recent[0]
        rate = (self._num_tokens - since_tokens) / max(now - since_s, 1e-9)
        self._recent.append((now, self._num_tokens))
        self._advance(num_finished, f"{self._num_tokens} tokens", f"{rate:.1f} tokens/s")


class CountBar(Bar):
    """Items done of a known number."""

    def update(self, num_done: int) -> None:
        self._advance(num_done)
