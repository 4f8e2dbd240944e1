"""Host: failures as OpenAI's clients read them: a status, and `{"error": {message, type, param, code}}`."""

import logging
import re
import secrets
from collections.abc import Iterator
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
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
# Paths and addresses of objects tell strangers about the machine, and help them not at all.
_PRIVATE = re.compile(r"(?<![\w:/])(?:/[\w.@+-]+){2,}/?|\b0x[0-9a-fA-F]{6,}\b")
log = logging.getLogger("jaxserve.server")


class ClientLeft(Exception):
    """Nobody is there any more to be answered."""


class ApiError(Exception):
    """A failure with all that its answer needs. headers: such as Retry-After."""

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
        """The answer's JSON."""
        message = _PRIVATE.sub("…", str(self))[:MAX_MESSAGE_CHARS]
        error = {"message": message, "type": TYPES[self.status], "param": self.param, "code": self.code or self.status}
        return {"error": error}


@contextmanager
def blaming(field: str) -> Iterator[None]:
    """What is wrong with a prompt is told of the field that it came in."""
    try:
        yield
    except (ApiError, RequestError) as error:
        if error.param == "prompt":
            error.param = field
        raise


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of any exception; of an unexpected one only a number, which stands in the log with it."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": str(getattr(error, "retry_after_s", None) or 1)}
        return ApiError(429, str(error), param=error.param, code="queue_full", headers=headers)
    if isinstance(error, RequestError):
        is_long = "maximum context length" in str(error)
        return ApiError(400, str(error), param=error.param, code="context_length_exceeded" if is_long else None)
    if isinstance(error, LateError):
        return ApiError(503, str(error), code="timeout", headers={"Retry-After": "1"})
    if isinstance(error, EngineDeadError):
        return ApiError(503, "the engine has ended; the server goes down", code="engine_dead")
    number = secrets.token_hex(6)
    log.error("failure %s", number, exc_info=error)
    return ApiError(500, f"internal error {number}: the server's log tells what happened")
