"""Host: a request's body: its kind, its size and the time it takes to come are bounded before anything reads it."""

import asyncio
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request

from jaxserve.server.http.error_responses import ApiError, ClientLeft
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.server_config import ServerConfig

LONG_BYTES = 32 << 10  # parsing and checking more takes over a millisecond, and is done in a thread
AnyBody = TypeVar("AnyBody", bound=Body)


async def read_body[AnyBody: Body](request: Request, kind: type[AnyBody], config: ServerConfig) -> AnyBody:
    """The checked body. Raises `ApiError` of status 400, 408, 413 or 415, and `ClientLeft`."""
    raw = await _receive(request, config)
    return await asyncio.to_thread(_parse, raw, kind) if len(raw) > LONG_BYTES else _parse(raw, kind)


def _parse[AnyBody: Body](raw: bytes, kind: type[AnyBody]) -> AnyBody:
    try:
        found: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    return kind.read(found)


async def _receive(request: Request, config: ServerConfig) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(415, "send JSON, with Content-Type: application/json")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > config.max_body_bytes:
        raise _too_large(config)
    parts, size = [], 0
    try:
        async with asyncio.timeout(config.receive_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > config.max_body_bytes:
                    raise _too_large(config)
                parts.append(part)
    except TimeoutError:
        message = f"the body did not come within {config.receive_timeout_s:g} s"
        raise ApiError(408, message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(parts)


def _too_large(config: ServerConfig) -> ApiError:
    message = f"the body is longer than {config.max_body_bytes} bytes"
    return ApiError(413, message, headers={"Connection": "close"})
