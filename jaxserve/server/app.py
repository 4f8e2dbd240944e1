"""Host: `make_app`: the ASGI application: all routes behind `RequestMiddleware` and CORS."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

import jaxserve
from jaxserve.server.http.error_responses import ApiError, ClientDisconnected, as_api_error
from jaxserve.server.http.head_requests import HeadAsGet
from jaxserve.server.http.middleware import RequestMiddleware
from jaxserve.server.routes import (
    adapter_routes,
    admin,
    health,
    live,
    metrics,
    openai_routes,
    stored_responses,
    tokenization,
    web_page,
)
from jaxserve.server.routes.description import complete
from jaxserve.server.server_state import ServerState

ROUTE_MODULES = (openai_routes, stored_responses, tokenization, health, metrics, admin, adapter_routes, live, web_page)


def make_app(state: ServerState) -> ASGIApp:
    """The application of a server, which may still be loading its model."""
    # A redirect to the path without its final slash would lead to whatever host the request names.
    app = FastAPI(title="jaxserve", version=jaxserve.__version__, redirect_slashes=False)
    for module in ROUTE_MODULES:
        app.include_router(module.routes(state))
    complete(app.openapi(), state.config)  # the app creates the description once and caches it
    app.add_middleware(HeadAsGet)
    app.add_exception_handler(Exception, _raise)
    app.add_exception_handler(HTTPException, _no_route)
    guarded: ASGIApp = RequestMiddleware(app, state.config, state.http_counts)
    if not state.config.allowed_origins:
        return guarded
    methods = ["GET", "HEAD", "POST", "DELETE"]
    return CORSMiddleware(
        guarded, allow_origins=state.config.allowed_origins, allow_methods=methods, allow_headers=["*"]
    )


async def _no_route(request: Request, error: Exception) -> Response:
    """An unknown path or method gets an error in the same format as any other."""
    assert isinstance(error, HTTPException)
    status = error.status_code if error.status_code in (404, 405) else 400
    headers = dict(error.headers or {})
    if "GET" in (allowed := headers.get("Allow", "")):
        headers["Allow"] = f"{allowed}, HEAD"
    raise ApiError(status, f"{request.method} {request.url.path[:200]}: {error.detail}", headers=headers)


async def _raise(_: Request, error: Exception) -> Response:
    raise error if isinstance(error, ClientDisconnected) else as_api_error(error)
