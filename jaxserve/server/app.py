"""Host: `make_app`, the server's routes behind its guard."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from jaxserve.server.http.error_responses import ApiError, ClientLeft, as_api_error
from jaxserve.server.http.middleware import RequestMiddleware
from jaxserve.server.openai.openapi_bodies import gather_parts
from jaxserve.server.routes import admin, health, live, metrics, openai_routes, tokenization, web_page
from jaxserve.server.server_state import FINGERPRINT, ServerState

ROUTERS = (openai_routes, tokenization, health, metrics, admin, live, web_page)


def make_app(service: ServerState) -> ASGIApp:
    """All routes over one service, which may still be starting."""
    app = FastAPI(title="jaxserve", version=FINGERPRINT.partition("-")[2])
    for part in ROUTERS:
        app.include_router(part.routes(service))
    gather_parts(app.openapi())  # which the app makes once and keeps
    app.add_exception_handler(Exception, _raise)
    app.add_exception_handler(HTTPException, _no_route)
    guarded: ASGIApp = RequestMiddleware(app, service.config, service.http.count)
    if not service.config.allowed_origins:
        return guarded
    return CORSMiddleware(
        guarded, allow_origins=service.config.allowed_origins, allow_methods=["GET", "POST"], allow_headers=["*"]
    )


async def _no_route(request: Request, error: Exception) -> Response:
    """Of an unknown path, or a method that it does not have, the same kind of answer as of everything else."""
    assert isinstance(error, HTTPException)
    status = error.status_code if error.status_code in (404, 405) else 400
    raise ApiError(
        status, f"{request.method} {request.url.path[:200]}: {error.detail}", headers=dict(error.headers or {})
    )


async def _raise(_: Request, error: Exception) -> Response:
    raise error if isinstance(error, ClientLeft) else as_api_error(error)
