"""Host: /health, which balancers ask, and /version."""

from fastapi import APIRouter
from starlette.responses import Response

from jaxserve.server.calls.respond import Json
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_state import FINGERPRINT, ServerState, ServerStatus


def routes(service: ServerState) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health")
    async def health() -> Response:
        """200 while requests are served; 503 before the model is there, while draining, when no step ends."""
        if (reason := why_unhealthy(service)) is not None:
            raise ApiError(503, reason, code=service.state.value)
        return Response()

    @router.get("/version")
    async def version() -> Response:
        return Json({"version": FINGERPRINT.partition("-")[2]})

    return router


def why_unhealthy(service: ServerState) -> str | None:
    """A sentence, or None for a server that serves."""
    if service.state is not ServerStatus.READY:
        return f"the server is {service.state.value}" + (f": {service.reason}" if service.reason else "")
    health = service.llm.health()
    if health.is_dead:
        return f"the engine has ended: {health.reason}"
    if health.stalled_s > service.config.stall_timeout_s:
        return f"requests wait, and no step has ended for {health.stalled_s:.0f} s"
    return None
