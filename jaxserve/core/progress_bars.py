"""Host: progress bars on standard error: bytes while weights load, buckets while they compile, samples and tokens a
second while texts grow."""

import time
from types import TracebackType
from typing import Any


class Bar:
    """A tqdm bar, or nothing when it is switched off."""

    def __init__(self, is_shown: bool, **options: Any):
        self._is_shown, self._options = is_shown, options
        self._bar: Any = None

    def __enter__(self):
        if self._is_shown:
            from tqdm import tqdm

            # miniters=0: bars move with tokens and time too, not only when a sample ends.
            self._bar = tqdm(dynamic_ncols=True, miniters=0, **self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class LoadBar(Bar):
    """Bytes of weights read, or written."""

    def __init__(self, is_shown: bool, desc: str = "Loading weights"):
        super().__init__(is_shown, desc=desc, unit="B", unit_scale=True, unit_divisor=1024)

    def update(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(done - self._bar.n)


class CompileBar(Bar):
    """Programs compiled, the last one named."""

    def update(self, name: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(name)
            self._bar.update()


class GenerateBar(Bar):
    """Samples finished, or other things of which each takes many tokens, and tokens a second over the whole call."""

    def __init__(self, is_shown: bool, total: int, *, desc: str = "Generating", unit: str = "sample"):
        super().__init__(is_shown, desc=desc, unit=unit, total=total)
        self._started_s, self._num_tokens = time.monotonic(), 0

    def update(self, num_finished: int, num_tokens: int) -> None:
        self._num_tokens += num_tokens
        if self._bar is not None:
            rate = self._num_tokens / max(time.monotonic() - self._started_s, 1e-9)
            self._bar.set_postfix_str(f"{self._num_tokens} tokens, {rate:.1f} tokens/s", refresh=False)
            self._bar.update(num_finished)


class CountBar(Bar):
    """Things done of a known number."""

    def update(self, num_done: int) -> None:
        if self._bar is not None:
            self._bar.update(num_done)
