"""Host: the routes that change something; they need the admin key."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.respond import Json
from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.server_state import ServerState


def routes(service: ServerState) -> APIRouter:
    router = APIRouter(tags=["admin"])
    keys, lock = ApiKeys(service.config), asyncio.Lock()
    traced: list[str] = []  # the folder, while a trace is being recorded

    def check(request: Request) -> None:
        keys.check_admin(request.headers.get("authorization"))

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache(request: Request) -> Response:
        """Forget the KV of requests that have ended."""
        check(request)
        return Json({"success": await service.llm.reset_prefix_cache()})

    @router.post("/start_profile")
    async def start_profile(request: Request) -> Response:
        """Record what the device and the host do, until /stop_profile, into the server's --profile-dir."""
        check(request)
        async with lock:
            if traced:
                raise ApiError(400, "a profile is being recorded: stop that first")
            await asyncio.to_thread(_start, service.config.profile_dir)
            traced.append(service.config.profile_dir)
        return Json({"success": True})

    @router.post("/stop_profile")
    async def stop_profile(request: Request) -> Response:
        """Write the trace."""
        check(request)
        async with lock:
            if not traced:
                raise ApiError(400, "no profile is being recorded: start one first")
            await asyncio.to_thread(_stop)
            traced.clear()
        return Json({"success": True})

    return router


def _start(folder: str) -> None:
    import jax

    jax.profiler.start_trace(folder)


def _stop() -> None:
    import jax

    jax.profiler.stop_trace()
