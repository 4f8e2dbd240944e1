"""Host: work for a client that may leave: it is given up when the connection closes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from jaxserve.server.http.error_responses import ClientLeft

Result = TypeVar("Result")


async def unless_gone[Result](request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client of `request`, whose body has been read, leaves.

    Raises `ClientLeft` then, which nobody needs to be told.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeft
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
            _ = working.cancelled() or working.exception()  # else asyncio logs that nobody has looked at it


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
