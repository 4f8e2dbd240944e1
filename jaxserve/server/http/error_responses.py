"""Host: `ApiError`: failures in OpenAI's format, a status and `{"error": {message, type, param, code}}`."""

import logging
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jaxserve.core.errors import EngineDeadError, LateError, QueueFullError, RequestError

MAX_MESSAGE_CHARS = 1000
TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    415: "UnsupportedMediaTypeError",
    429: "RateLimitError",
    431: "HeadersTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}
# OpenAI's clients retry any 503 otherwise: an hour's deadline would become three, each time computed again.
DO_NOT_RETRY = {"X-Should-Retry": "false"}
log = logging.getLogger("jaxserve.server")


class ClientDisconnected(Exception):
    """The client closed the connection: no response can be sent."""


class ApiError(Exception):
    """A failure with everything that its response needs. headers: extra ones, such as Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers or {}

    def body(self) -> dict[str, Any]:
        """The response's JSON."""
        message = str(self)[:MAX_MESSAGE_CHARS]
        error = {"message": message, "type": TYPES[self.status], "param": self.param, "code": self.code}
        return {"error": error}


@contextmanager
def errors_name_field(field: str) -> Generator[None]:
    """Errors about the engine's parameter `prompt` name the body's field that held the prompt instead."""
    try:
        yield
    except (ApiError, RequestError) as error:
        if error.param == "prompt":
            error.param = field
        raise


def as_api_error(error: Exception) -> ApiError:
    """The response to any exception. An unexpected one is logged under a number, and the client gets the number."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(getattr(error, "retry_after_s", None) or 1)}
        return ApiError(429, str(error), param=error.param, code="queue_full", headers=headers)
    if isinstance(error, RequestError):
        is_long = "maximum context length" in str(error)
        return ApiError(400, str(error), param=error.param, code="context_length_exceeded" if is_long else None)
    if isinstance(error, LateError):
        return ApiError(503, str(error), code="timeout", headers=DO_NOT_RETRY)
    if isinstance(error, EngineDeadError):
        return ApiError(503, "the engine has failed; the server is shutting down", code="engine_dead")
    number = secrets.token_hex(6)
    log.error("failure %s", number, exc_info=error)
    return ApiError(500, f"internal error {number}: the server's log has the details")
