"""Host: progress on standard error: one tqdm bar on a terminal, a few plain lines in a log file."""

import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from jaxserve.core.compile_times import COMPILE_TIMES, about_left
from jaxserve.core.deferred_signals import deferred_signals
from jaxserve.core.progress_displays import ProgressLines, TerminalBar

RATE_S = 2.0
TICK_S = 0.5  # between two looks at the clock: bars show the time while a step compiles
_LINE = threading.Lock()  # held by the bar that is shown: another one within it would overwrite it


class Bar:
    """A progress bar; nothing where it is switched off or another one is open. desc: the phase. unit: the noun of what
    is counted. n: how many are done before it begins."""

    def __init__(self, is_shown: bool, *, desc: str, unit: str, total: int | None = None, n: int = 0, **options: Any):
        self.n, self.total, self._first = n, total, n
        self._options: dict[str, Any] = {"desc": desc, "unit": unit, **options}
        self._is_shown = is_shown
        self._totals = self._moment = ""
        self._display: TerminalBar | ProgressLines | None = None
        self._started_s = self._now_s()
        self._lock, self._is_closed = threading.Lock(), threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _open(self) -> None:
        with deferred_signals():  # an interrupt between the lines would hold the line for ever
            self._show_first()

    def _close(self) -> None:
        with deferred_signals():
            if self._display is not None:
                self._is_closed.set()
                if self._ticker is not None:
                    self._ticker.join()
                self._display.close(self.n, self.total, self._totals)
                self._display = None
                _LINE.release()

    def _show_first(self) -> None:
        if self._is_shown and _LINE.acquire(blocking=False):
            self._started_s = self._now_s()
            if sys.stderr.isatty():
                self._display = TerminalBar(total=self.total, n=self.n, **self._options)
            else:
                self._display = ProgressLines(**self._options)
            self._ticker = threading.Thread(target=self._tick, name="jaxserve-progress", daemon=True)
            self._ticker.start()

    def _advance(self, count: int, totals: str = "", moment: str = "") -> None:
        """Counts; `totals` describes the whole call, `moment` the last step, which is not shown at the end."""
        if self._display is not None:
            with self._lock:
                self.n += count
                self._totals, self._moment = totals, moment
                self._show(self._display)

    def _show(self, display: TerminalBar | ProgressLines) -> None:
        moment = ", ".join(filter(None, (COMPILE_TIMES.status() or self._moment, self._left())))
        display.show(self.n, self.total, self._totals, moment)

    def _left(self) -> str:
        """The time left of a compilation, else of all, by the pace since the bar began."""
        return COMPILE_TIMES.left() if COMPILE_TIMES.status() else self._left_of_all()

    def _left_of_all(self) -> str:
        num_done = self.n - self._first
        if self.total is None or num_done <= 0 or self.n >= self.total:
            return ""
        return about_left((self._now_s() - self._started_s) / num_done * (self.total - self.n))

    def _now_s(self) -> float:
        return COMPILE_TIMES.work_s()

    def _tick(self) -> None:
        while not self._is_closed.wait(TICK_S):
            with self._lock:
                if self._display is not None:
                    self._show(self._display)


class LoadBar(Bar):
    """Bytes of weights read or written. It opens with the first of them: fetching a model shows its own progress."""

    def __init__(self, is_shown: bool, desc: str = "Loading weights"):
        super().__init__(is_shown, desc=desc, unit="B", unit_scale=True)

    def __enter__(self) -> Self:
        return self

    def update(self, done: int, total: int) -> None:
        self.total = total
        if self._display is None:
            self._open()
            self._is_shown = False  # one attempt: what it counts has begun
        self._advance(done - self.n)


class CompileBar(Bar):
    """Programs compiled, and what is compiled now."""

    def __init__(self, is_shown: bool, total: int):
        super().__init__(is_shown, desc="Compiling", unit="program", total=total)

    def update(self, name: str) -> None:
        self._advance(1, moment=name)

    def _left(self) -> str:
        return self._left_of_all()

    def _now_s(self) -> float:
        return time.monotonic()


class GenerateBar(Bar):
    """Samples finished, or other items of many tokens each, with the token rate of the last `RATE_S` seconds."""

    def __init__(self, is_shown: bool, total: int, *, desc: str = "Generating", unit: str = "sample", n: int = 0):
        super().__init__(is_shown, desc=desc, unit=unit, total=total, n=n)
        self._num_tokens = 0
        self._recent: deque[tuple[float, int]] = deque([(self._now_s(), 0)])  # (time, tokens until then)

    def update(self, num_finished: int, num_tokens: int) -> None:
        now = self._now_s()
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
