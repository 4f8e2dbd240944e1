"""Host: `ProgressBars`: the progress of a serving benchmark on the terminal, with its rates."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from jaxserve.bench.serving.client.request_result import RequestResult


class ProgressBars:
    """Silent unless `is_shown`."""

    def __init__(self, is_shown: bool) -> None:
        self.is_shown = is_shown

    @contextmanager
    def prompts(self, total: int) -> Generator[Callable[[int], object]]:
        """A bar of prompts that are built."""
        from tqdm import tqdm

        with tqdm(total=total, desc="prompts", unit="prompt", disable=not self.is_shown, leave=False) as bar:
            yield bar.update

    @contextmanager
    def requests(self, name: str, total: int) -> Generator[Callable[[RequestResult], object]]:
        """A bar of answered requests; the rate of output tokens counts requests that have ended."""
        from tqdm import tqdm

        num_output, num_failed, start_s = 0, 0, time.perf_counter()

        def done(result: RequestResult) -> None:
            nonlocal num_output, num_failed
            num_output += result.output_len
            num_failed += result.failure is not None
            bar.set_postfix_str(_rates(num_output / (time.perf_counter() - start_s), num_failed), refresh=False)
            bar.update()

        with tqdm(total=total, desc=name, unit="req", disable=not self.is_shown) as bar:
            yield done


def _rates(tokens_per_s: float, num_failed: int) -> str:
    return f"{tokens_per_s:,.1f} tok/s" + (f", {num_failed} failed" if num_failed else "")
