"""Host: `GET /live`: frames of the engine's current state as server-sent events, for the web page."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import APIRouter
from starlette.responses import Response

from jaxserve.core.errors import EngineDeadError
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.sse_response import EventStream
from jaxserve.server.monitoring.live_frame import frame, speeds
from jaxserve.server.routes.description import EVENTS, describe
from jaxserve.server.server_state import ServerState, ServerStatus

PERIOD_S = 0.25
MAX_WATCHERS = 32


class Frames:
    """Frames of one engine: each is built once and shared by all watchers, and none is built without watchers."""

    def __init__(self, state: ServerState):
        self._state, self._due_s = state, 0.0
        self._coming: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        """The next frame, at least `PERIOD_S` after the last one. Raises `EngineDeadError` after the engine's end."""
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._build())
            self._coming.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._coming)  # other watchers may await the same frame

    async def _build(self) -> bytes:
        clock, engine = asyncio.get_running_loop().time, self._state.engine
        await asyncio.sleep(max(0.0, self._due_s - clock()))
        self._due_s = clock() + PERIOD_S
        return frame(await engine.snapshot(), speeds(engine.metrics))


def _retrieve_exception(task: asyncio.Task[bytes]) -> None:
    """Without remaining watchers asyncio would log a frame's exception as never retrieved."""
    if not task.cancelled():
        task.exception()


class Watchers:
    """Counts the open streams and limits them to `MAX_WATCHERS`."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self) -> None:
        if self.count >= MAX_WATCHERS:
            message = f"{MAX_WATCHERS} browser tabs are watching this engine, which is the limit: close one"
            raise ApiError(503, message, code="too_many_watchers", headers={"Retry-After": "10"})
        self.count += 1

    def leave(self) -> None:
        self.count -= 1


def routes(state: ServerState) -> APIRouter:
    router, frames, watchers = APIRouter(), Frames(state), Watchers()

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            while state.status is ServerStatus.READY:  # shutdown does not wait for watchers
                yield b"data: " + await frames.next() + b"\n\n"
        except EngineDeadError:
            pass

    @router.get("/live", **describe(media_type=EVENTS, statuses=(503,)))
    async def live() -> Response:
        """The engine's state as server-sent events, four per second; `live_frame.frame` describes the fields."""
        _ = state.engine  # raises while the model is being loaded
        watchers.enter()
        return EventStream(events(), on_end=watchers.leave)

    return router
