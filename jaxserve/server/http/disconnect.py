"""Host: `unless_disconnected`: runs a coroutine for a request and cancels it when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from jaxserve.server.http.error_responses import ClientDisconnected


async def unless_disconnected[T](request: Request, coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of `coroutine`; cancels it and raises `ClientDisconnected` when the client disconnects.

    request: one whose body has been read.
    """
    working, leaving = asyncio.ensure_future(coroutine), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnected
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))
            _ = working.cancelled() or working.exception()  # retrieved, or asyncio logs it as never retrieved


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
