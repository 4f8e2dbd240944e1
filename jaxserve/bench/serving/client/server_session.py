"""Host: the connections to the measured server, and untimed requests: model name, readiness, metrics."""

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from jaxserve.bench.serving.client.request_result import one_line
from jaxserve.bench.serving.client.streamed_answer import error_message
from jaxserve.core.errors import ConfigError

KEEP_ALIVE_S = 2.0  # below uvicorn's 5 s, so that the server does not close a connection just as it is reused
RETRY_S = 0.5  # between two readiness checks
BRIEF, PATIENT = aiohttp.ClientTimeout(total=5), aiohttp.ClientTimeout(total=60)  # seconds, for untimed requests
UNREADY = (502, 503, 504)


def open_session(base_url: str, headers: Mapping[str, str], timeout_s: float) -> aiohttp.ClientSession:
    """A session with unlimited connections; proxies of the environment apply unless the server is on this machine."""
    return aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        trust_env=not _is_loopback(base_url),
    )


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON answer to GET, or to POST with a body. Raises `ConfigError` for an error or another answer."""
    method = "GET" if body is None else "POST"
    try:
        async with session.request(method, url, json=body, timeout=PATIENT) as response:
            text = await text_of(response)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ConfigError(f"cannot reach {url}: {error or type(error).__name__}", param="base_url") from None
    if response.status != 200:
        message = one_line(message_in(text) or response.reason or "")
        raise ConfigError(f"{url} answers {response.status}: {message}", param="base_url")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"the answer of {url} is not JSON", param="base_url") from None


async def served_model(session: aiohttp.ClientSession, base_url: str) -> str:
    """The first model of /v1/models."""
    found = await ask(session, f"{base_url}/v1/models")
    try:
        return str(found["data"][0]["id"])
    except (LookupError, TypeError):
        raise ConfigError(f"{base_url}/v1/models lists no model: add --model", param="model") from None


async def wait_ready(session: aiohttp.ClientSession, base_url: str, wait_s: float) -> None:
    """Waits until /health answers with any status except 502, 503 and 504; `ConfigError` after `wait_s` seconds."""
    end_s = asyncio.get_running_loop().time() + wait_s
    while (reason := await _unready_reason(session, f"{base_url}/health")) is not None:
        if asyncio.get_running_loop().time() >= end_s:
            raise ConfigError(f"{base_url} is not ready after {wait_s:g} s: {reason}", param="ready_check_timeout_sec")
        await asyncio.sleep(RETRY_S)


async def metrics_text(session: aiohttp.ClientSession, base_url: str) -> str:
    """The text of /metrics; empty where the server has none."""
    try:
        async with session.get(f"{base_url}/metrics", timeout=BRIEF) as response:
            return await text_of(response) if response.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


async def _unready_reason(session: aiohttp.ClientSession, url: str) -> str | None:
    try:
        async with session.get(url, timeout=BRIEF) as response:
            return f"{url} answers {response.status}" if response.status in UNREADY else None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return str(error) or type(error).__name__


async def text_of(response: aiohttp.ClientResponse) -> str:
    """The body as UTF-8, which all of these servers write; the header may name a codec that is not for text."""
    return (await response.read()).decode("utf-8", "replace")


def message_in(text: str) -> str | None:
    """The error message in the text of an answer, or the text itself."""
    try:
        return error_message(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
