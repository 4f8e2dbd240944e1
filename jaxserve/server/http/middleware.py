"""Host: `RequestMiddleware`: gives requests ids, checks hosts and keys, counts responses, answers exceptions."""

import re
import secrets
from collections import Counter
from dataclasses import dataclass

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxserve.server.http.allowed_hosts import AllowedHosts
from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.error_responses import ApiError, ClientDisconnected, as_api_error
from jaxserve.server.monitoring.access_log import AccessRecord, log_access
from jaxserve.server.server_config import ServerConfig

REQUEST_ID = re.compile(r"[\w.:-]{1,128}")
MAX_HEADERS = 256
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that disconnects before the response
METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


@dataclass(slots=True)
class Caller:
    """The origin of one request. record: its log line. client: a name for the key that was sent; None without keys."""

    record: AccessRecord
    client: str | None = None


def caller_of(request: Request) -> Caller:
    return request.scope["jaxserve.caller"]


class HttpCounts:
    """Counts responses by method, route and status; written and read in the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, handler: str, status: int) -> None:
        """handler: the route's pattern, not the path. Unknown methods count as "other": clients could invent any
        number of paths and methods, and each would become a time series."""
        self._counts[method if method in METHODS else "other", handler, status] += 1

    def items(self) -> list[tuple[tuple[str, str, int], int]]:
        """Pairs of (method, handler, status) and the count."""
        return sorted(self._counts.items())


class RequestMiddleware:
    """The outermost application, in plain ASGI so that streams pass through untouched."""

    def __init__(self, app: ASGIApp, config: ServerConfig, counts: HttpCounts):
        self._app, self._keys, self._counts, self._config = app, ApiKeys(config), counts, config
        self._hosts, self._max_header_bytes = AllowedHosts(config), config.max_header_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        header_id = headers.get("x-request-id", "")
        request_id = header_id if REQUEST_ID.fullmatch(header_id) else secrets.token_hex(16)
        caller = Caller(AccessRecord(request_id, route="none"))
        scope["jaxserve.caller"], scope["root_path"] = caller, self._config.root_path
        response = _Response(send, caller.record)
        try:
            self._check_headers(scope)
            is_public = _route_path(scope) in self._config.public_paths
            self._hosts.check(scope, is_public=is_public)
            if not is_public and scope["method"] != "OPTIONS":  # browsers send CORS preflights without the key
                caller.client = self._keys.check(headers)
            await self._app(scope, receive, response.send)
        except ClientDisconnected:
            pass
        except Exception as error:
            if response.status is not None:  # the status has been sent: it is too late for an error response
                raise
            await response.fail(as_api_error(error))
        finally:
            caller.record.route = getattr(scope.get("route"), "path", "none")
            status = response.status or CLIENT_CLOSED_REQUEST
            self._counts.count(scope["method"], caller.record.route, status)
            if scope["method"] == "POST":
                log_access(self._config, caller.record, status)

    def _check_headers(self, scope: Scope) -> None:
        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"])
        if size > self._max_header_bytes or len(scope["headers"]) > MAX_HEADERS:
            raise ApiError(431, f"headers are over {self._max_header_bytes} bytes or {MAX_HEADERS} lines")


def _route_path(scope: Scope) -> str:
    """The path that selects the route: without the root path, which proxies may have stripped already."""
    path, root = scope["path"], scope["root_path"]
    return path[len(root) :] if path.startswith(f"{root}/") else path


class _Response:
    """Sends one response with its id, and remembers its status. record: holds the id, which a body may set."""

    def __init__(self, send: Send, record: AccessRecord):
        self._send, self._record = send, record
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._record.request_id
            headers.setdefault("X-Content-Type-Options", "nosniff")
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        body = orjson.dumps(error.body())
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
        headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
