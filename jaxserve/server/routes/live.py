"""Host: `GET /live`, the engine as it is now, a few times a second, for whoever watches the page."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter
from starlette.responses import Response

from jaxserve.core.errors import EngineDeadError
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.sse_response import EventStream
from jaxserve.server.monitoring.live_frame import frame, speeds
from jaxserve.server.server_state import ServerState, ServerStatus

PERIOD_S = 0.25
MAX_WATCHERS = 32


class Frames:
    """Frames of one engine, each made once for all who ask for it, and none while nobody asks."""

    def __init__(self, service: ServerState):
        self._service, self._due_s = service, 0.0
        self._coming: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        """The next frame, at least `PERIOD_S` after the one before. Raises `EngineDeadError` where there is none."""
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._take())
            self._coming.add_done_callback(_hear)
        return await asyncio.shield(self._coming)  # for others may wait for it too

    async def _take(self) -> bytes:
        clock, client = asyncio.get_running_loop().time, self._service.llm.client
        await asyncio.sleep(max(0.0, self._due_s - clock()))
        self._due_s = clock() + PERIOD_S
        return frame(await client.snapshot(), speeds(client.metrics))


def _hear(task: asyncio.Task[bytes]) -> None:
    """A frame's failure is told to those who wait for it; there may be none left."""
    if not task.cancelled():
        task.exception()


class Watchers:
    """How many watch, and at most may."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self) -> None:
        if self.count >= MAX_WATCHERS:
            message = f"{MAX_WATCHERS} pages watch this engine, which is the most: close one"
            raise ApiError(503, message, code="too_many_watchers", headers={"Retry-After": "10"})
        self.count += 1

    def leave(self) -> None:
        self.count -= 1


def routes(service: ServerState) -> APIRouter:
    router, frames, watchers = APIRouter(), Frames(service), Watchers()

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            while service.state is ServerStatus.READY:  # a server that goes down does not wait for its watchers
                yield b"data: " + await frames.next() + b"\n\n"
        except EngineDeadError:
            pass

    @router.get("/live")
    async def live() -> Response:
        """What the engine does, as server-sent events, four a second; fields: `live_frame.py`."""
        _ = service.llm  # refused while there is none
        watchers.enter()
        return EventStream(events(), on_end=watchers.leave)

    return router
