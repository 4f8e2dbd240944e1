"""Host: `RequestMiddleware`: gives each request an id, checks its key, and turns exceptions into error responses."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.error_responses import ApiError, ClientLeft, as_api_error
from jaxserve.server.monitoring.access_log import AccessRecord, log_served
from jaxserve.server.server_config import ServerConfig

REQUEST_ID = re.compile(r"[\w.:-]{1,128}")
MAX_HEADERS = 256
LEFT = 499  # as proxies call it: the client left before there was an answer
Count = Callable[[str, str, int], None]  # method, route, status


@dataclass(slots=True)
class Caller:
    """Who asks. served: what becomes of the request. client: a name for the key that was sent, None where none is asked
    for."""

    served: AccessRecord
    client: str | None = None


def caller(request: Request) -> Caller:
    return request.scope["jaxserve.caller"]


class RequestMiddleware:
    """Outermost of all; plain ASGI, so that streams pass through untouched.

    count: told of every answer, by the route's pattern rather than the path, which strangers choose.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, count: Count):
        self._app, self._keys, self._count, self._config = app, ApiKeys(config), count, config
        self._max_header_bytes = config.max_header_bytes
        self._public = {"/health", *(["/metrics"] if config.public_metrics else [])}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = headers.get("x-request-id", "")
        request_id = asked if REQUEST_ID.fullmatch(asked) else secrets.token_hex(16)
        who = Caller(AccessRecord(request_id, route="none"))
        scope["jaxserve.caller"], scope["root_path"] = who, self._config.root_path
        started = _Started(send, who.served)
        try:
            self._check_headers(scope)
            # CORS: browsers ask without the key whether they may send it.
            if _route_path(scope) not in self._public and scope["method"] != "OPTIONS":
                who.client = self._keys.check(headers.get("authorization"))
            await self._app(scope, receive, started.send)
        except ClientLeft:
            pass
        except Exception as error:
            if started.status is not None:  # too late to say anything else
                raise
            await started.fail(as_api_error(error))
        finally:
            who.served.route = getattr(scope.get("route"), "path", "none")
            status = started.status or LEFT
            self._count(scope["method"], who.served.route, status)
            if scope["method"] == "POST":
                log_served(self._config, who.served, status)

    def _check_headers(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"])
        if size > self._max_header_bytes or len(scope["headers"]) > MAX_HEADERS:
            raise ApiError(431, f"headers are over {self._max_header_bytes} bytes or {MAX_HEADERS} lines")


def _route_path(scope: Scope) -> str:
    """The path by which routes are found: proxies may strip the root from it, or leave it."""
    path, root = scope["path"], scope["root_path"]
    return path[len(root) :] if path.startswith(f"{root}/") else path


class _Started:
    """What has been sent of an answer. served: has its id, which a body may have changed."""

    def __init__(self, send: Send, served: AccessRecord):
        self._send, self._served = send, served
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._served.request_id
            headers.setdefault("X-Content-Type-Options", "nosniff")
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        body = orjson.dumps(error.body())
        given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
        headers = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
