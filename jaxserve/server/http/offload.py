"""Host: `offload`: runs long work in a thread so that it does not block the event loop."""

import asyncio
from collections.abc import Callable

BRIEF = 1024  # this many tokens, log-probabilities or similar items take well under a millisecond to serialize


async def offload[T](make: Callable[[], T], size: int) -> T:
    """The result of `make`, called in a thread if `size` (items to process) is over `BRIEF`, else at once."""
    return make() if size <= BRIEF else await asyncio.to_thread(make)
