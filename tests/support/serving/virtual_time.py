"""An asyncio event loop whose clock jumps to the next scheduled call once no socket is readable.

An hour passes at once, and times are exact: data is read at the virtual time at which it was written, if both ends of
the socket are in this loop. Threads do not use this clock: waiting for one takes a little real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

GRACE_S = 0.002  # real time for written data to arrive; immediate on the loopback interface


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """timeout: virtual seconds; None: nothing is scheduled."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        ready = super().select(GRACE_S if timeout is not None else None)
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_virtually[T](main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def clock() -> float:
    """Seconds on the running loop's clock."""
    return asyncio.get_running_loop().time()
