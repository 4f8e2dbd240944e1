"""Host: `offload`: runs long work in a thread so that it does not block the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from starlette.responses import Response

BRIEF = 1024  # tokens, log-probabilities or other things that take well under a millisecond to make and to write down


async def offload[T](make: Callable[[], T], size: int) -> T:
    """What `make` gives; where there is little to do, at once."""
    return make() if size <= BRIEF else await asyncio.to_thread(make)


async def json_aside(make: Callable[[], Any], size: int) -> Response:
    """What `make` gives, as JSON."""
    return Response(await offload(lambda: orjson.dumps(make()), size), media_type="application/json")
