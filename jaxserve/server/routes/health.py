"""Host: /health, /ping and /load, for load balancers and supervisors, and /version."""

from fastapi import APIRouter
from starlette.responses import Response

import jaxserve
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.json_response import Json
from jaxserve.server.openai.schemas.others import LoadResponse, VersionResponse
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState, ServerStatus

SEE_LOG = "; its log has the reason"  # which may hold paths, and this route needs no key


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health", **describe(statuses=(503,)))
    @router.get("/ping", **describe(statuses=(503,)))
    @router.post("/ping", **describe(statuses=(503,)))
    async def health() -> Response:
        """200 while requests are served; 503 while loading or draining, after a failure, and while steps stall."""
        if (reason := why_unhealthy(state)) is not None:
            raise ApiError(503, reason, code=state.status.value)
        return Response()

    @router.get("/load", **describe(LoadResponse))
    async def load() -> Response:
        """The number of requests that use the model now."""
        return Json({"server_load": state.num_active})

    @router.get("/version", **describe(VersionResponse))
    async def version() -> Response:
        """The server's version."""
        return Json({"version": jaxserve.__version__})

    return router


def why_unhealthy(state: ServerState) -> str | None:
    """The reason in a sentence; None for a healthy server."""
    if state.status is not ServerStatus.READY:
        return f"the server is {state.status.value}" + (SEE_LOG if state.status is ServerStatus.DEAD else "")
    health = state.engine.health()
    if health.is_dead:
        return "the engine has failed" + SEE_LOG
    if health.stalled_s > state.config.stall_timeout_s:
        return f"requests are running, but no step has finished for {health.stalled_s:.0f} s"
    return None
