"""`handlers`: handlers of signals within a block; those before are back in their places after it."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handlers(handler: Any, *signals: int) -> Generator[None]:
    """`handler` for each of the signals, also in a process that a shell started in the background, where SIGINT is
    ignored. A timer that sends SIGVTALRM ends with the block, whose own handlers must be in their places then."""
    before = {signum: signal.signal(signum, handler) for signum in signals}
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    for signum, other in before.items():
        assert signal.signal(signum, other) is handler
