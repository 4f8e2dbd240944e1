"""Host: `offload`: runs long work in a thread so that it does not block the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor


async def offload[T](make: Callable[[], T], size: int, limit: int, threads: Executor | None = None) -> T:
    """The result of `make`, called in a thread if `size` is over `limit`, else at once.

    limit: the largest size of work that takes less than about a millisecond. threads: those of the event loop, or
    others for work that waits, which would keep work of the loop's few threads waiting.
    """
    return make() if size <= limit else await asyncio.get_running_loop().run_in_executor(threads, make)
