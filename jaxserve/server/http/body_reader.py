"""Host: `read_body`: reads a request's JSON body after checking its type, size and arrival time."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from jaxserve.engine.serving.offload import offload
from jaxserve.server.http.error_responses import ApiError, ClientDisconnected
from jaxserve.server.server_config import ServerConfig

MAX_INLINE_BYTES = 32 << 10  # longer bodies take over a millisecond to parse and check


async def read_body[T](request: Request, read: Callable[[Any], T], config: ServerConfig) -> T:
    """What `read` makes of the body's JSON. Raises `ApiError` (400, 408, 413, 415) and `ClientDisconnected`."""
    raw = await _receive(request, config)
    return await offload(lambda: _parse(raw, read), len(raw), MAX_INLINE_BYTES)


def _parse[T](raw: bytes, read: Callable[[Any], T]) -> T:
    try:
        parsed: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    return read(parsed)


async def _receive(request: Request, config: ServerConfig) -> bytes:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(415, "send JSON, with Content-Type: application/json")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > config.max_body_bytes:
        raise _too_large(config)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(config.receive_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > config.max_body_bytes:
                    raise _too_large(config)
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {config.receive_timeout_s:g} s"
        raise ApiError(408, message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientDisconnected from None
    return b"".join(parts)


def _too_large(config: ServerConfig) -> ApiError:
    message = f"the body is longer than {config.max_body_bytes} bytes"
    return ApiError(413, message, headers={"Connection": "close"})
