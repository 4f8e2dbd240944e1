"""Host: the administrative routes, which change the server's state and need the admin key."""

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.json_response import Json
from jaxserve.server.openai.schemas.others import SuccessResponse
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["admin"])
    keys, lock = ApiKeys(state.config), asyncio.Lock()
    options = describe(SuccessResponse, statuses=(503,), is_admin=True)
    traced: list[str] = []  # the folder, while a trace is being recorded

    def check(request: Request) -> None:
        keys.check_admin(request.headers)

    @router.post("/reset_prefix_cache", **options)
    async def reset_prefix_cache(request: Request) -> Response:
        """Drop the cached KV of finished requests."""
        check(request)
        await state.engine.reset_prefix_cache()
        return Json({"success": True})

    @router.post("/start_profile", **options)
    async def start_profile(request: Request) -> Response:
        """Start a trace of device and host, written to the server's --profile-dir by /stop_profile."""
        check(request)
        async with lock:
            if traced:
                raise ApiError(400, "a profile is already being recorded: stop it first")
            await asyncio.to_thread(_start_trace, state.config.profile_dir)
            traced.append(state.config.profile_dir)
        return Json({"success": True})

    @router.post("/stop_profile", **options)
    async def stop_profile(request: Request) -> Response:
        """Stop the trace and write it."""
        check(request)
        async with lock:
            if not traced:
                raise ApiError(400, "no profile is being recorded: start one first")
            await asyncio.to_thread(_stop_trace)
            traced.clear()
        return Json({"success": True})

    return router


def _start_trace(folder: str) -> None:
    """JAX opens the folder only at the end; if that fails, its trace can neither be stopped nor started anew."""
    import jax

    Path(folder).mkdir(parents=True, exist_ok=True)
    profiler: Any = jax.profiler
    profiler.start_trace(folder)


def _stop_trace() -> None:
    import jax

    jax.profiler.stop_trace()
