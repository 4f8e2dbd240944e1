"""Host: `compile_notice`: shows on the terminal what is compiled while an answer waits for it."""

import shutil
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from jaxserve.core.compile_times import COMPILE_TIMES

TICK_S = 0.5
ERASE = "\r\x1b[K"


@contextmanager
def compile_notice() -> Generator[None]:
    """The notice stands on the line where the answer is going to begin, and is erased on exit."""
    is_over = threading.Event()

    def tick() -> None:
        is_shown = False
        while not is_over.wait(TICK_S):
            status = ", ".join(filter(None, (COMPILE_TIMES.status(), COMPILE_TIMES.left())))
            status = status[: shutil.get_terminal_size().columns - 1]  # a longer one would wrap, and stay
            if status or is_shown:
                print(f"{ERASE}{status}", end="", file=sys.stderr, flush=True)
            is_shown = bool(status)
        if is_shown:
            print(ERASE, end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield
        return
    ticker = threading.Thread(target=tick, name="jaxserve-progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        is_over.set()
        ticker.join()
