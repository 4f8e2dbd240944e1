"""Host: the two displays of a progress bar: `TerminalBar`, and `ProgressLines` for log files."""

import sys
import time
from typing import Any

FIRST_LINE_S = 10.0  # a log file gets a line then, and whenever twice that time has passed,
LINE_PERIOD_S = 300.0  # or this


class ProgressLines:
    """The counterpart of a bar in a log file: a line after 10, 20, 40 … seconds and one at the end."""

    def __init__(self, *, desc: str, unit: str, unit_scale: bool = False, **_: Any) -> None:
        self._desc, self._unit, self._is_bytes = desc, unit, unit_scale
        self._started_s = time.monotonic()
        self._next_s = FIRST_LINE_S

    def show(self, n: int, total: int | None, totals: str, moment: str) -> None:
        elapsed_s = time.monotonic() - self._started_s
        if elapsed_s >= self._next_s:
            self._next_s = elapsed_s + min(elapsed_s, LINE_PERIOD_S)
            self._print(n, total, totals, moment)

    def close(self, n: int, total: int | None, totals: str) -> None:
        if n:
            self._print(n, total, totals, "")

    def _print(self, n: int, total: int | None, totals: str, moment: str) -> None:
        total = n if total is None else total
        count = f"{n / 1e6:.1f} of {total / 1e6:.1f} MB" if self._is_bytes else f"{n}/{total} {self._unit}s"
        counts = ", ".join(filter(None, (count, totals)))
        time_text = f"in {time.monotonic() - self._started_s:.1f} s"
        print(f"{self._desc}: {counts} {', '.join(filter(None, (time_text, moment)))}", file=sys.stderr, flush=True)


class TerminalBar:
    """A tqdm bar with estimates of its own: tqdm's count the time in which steps were compiled."""

    def __init__(self, *, desc: str, unit: str, total: int | None, n: int, unit_scale: bool = False):
        from tqdm import tqdm

        count = "{n_fmt}/{total_fmt}B, {rate_fmt}" if unit_scale else f"{{n_fmt}}/{{total_fmt}} {unit}s"
        self.tqdm = tqdm(
            desc=desc,
            total=total,
            initial=n,
            unit=unit,
            unit_scale=unit_scale,
            unit_divisor=1024 if unit_scale else 1000,
            bar_format=f"{{desc}}: {{percentage:3.0f}}%|{{bar}}| {count}{{postfix}}",
            dynamic_ncols=True,
            miniters=0,  # bars move with tokens and time too, not only when a sample ends
        )

    def show(self, n: int, total: int | None, totals: str, moment: str) -> None:
        self.tqdm.total = total
        self.tqdm.set_postfix_str(", ".join(filter(None, (totals, moment))), refresh=False)
        self.tqdm.update(n - self.tqdm.n)

    def close(self, n: int, total: int | None, totals: str) -> None:
        self.tqdm.set_postfix_str(totals, refresh=False)
        self.tqdm.close()
