"""Host: `offload`: runs long work in a thread so that it does not block the event loop."""

import asyncio
from collections.abc import Callable


async def offload[T](make: Callable[[], T], size: int, limit: int) -> T:
    """The result of `make`, called in a thread if `size` is over `limit`, else at once.

    limit: the largest size of work that takes less than about a millisecond.
    """
    return make() if size <= limit else await asyncio.to_thread(make)
