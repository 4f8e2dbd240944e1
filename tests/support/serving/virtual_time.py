"""An asyncio loop whose clock jumps to the next moment at which something is due, once nothing can be read any more.

So an hour passes at once, and moments are exact: what a socket brings is read at the moment at which it was written, as
long as both ends are in this loop. Threads know nothing of this clock: what waits for one gets a little real time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

GRACE_S = 0.002  # real time for what was written to arrive; on the loopback it is there at once


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """timeout: virtual seconds; None: nothing is due."""
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
    """Seconds, on the running loop's clock."""
    return asyncio.get_running_loop().time()
