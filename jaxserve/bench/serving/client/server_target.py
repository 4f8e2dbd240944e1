"""Host: `ServerTarget`: the measured server: its address, its model and the body of each request."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from jaxserve.bench.serving.datasets.exact_prompts import BenchRequest
from jaxserve.bench.serving.options import CHAT
from jaxserve.core.errors import ConfigError, RequestError

KEY_VARIABLES = ("OPENAI_API_KEY", "JAXSERVE_API_KEY")


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """One server and route.

    base_url: without /v1. path: the measured route. extra: additional fields of every request. timeout_s: limit of a
    whole request. headers: include the API key, so they are left out of the representation.
    """

    base_url: str
    path: str
    model: str
    extra: Mapping[str, Any]
    timeout_s: float
    headers: Mapping[str, str] = field(repr=False)

    @property
    def is_chat(self) -> bool:
        return self.path == CHAT

    @property
    def url(self) -> str:
        return self.base_url + self.path

    def body(self, request: BenchRequest) -> bytes:
        """The JSON body of a streamed request."""
        body: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        if self.is_chat:
            body["messages"] = [{"role": "user", "content": request.prompt}]
            body["max_completion_tokens"] = request.output_len
        else:
            body |= {"prompt": request.prompt, "max_tokens": request.output_len}
        if request.cache_salt is not None:
            body["cache_salt"] = request.cache_salt
        return json.dumps(body | dict(self.extra)).encode()

    def check(self, requests: Sequence[BenchRequest]) -> None:
        """Raises `RequestError` for prompts of token ids in chats."""
        if self.is_chat and not all(isinstance(request.prompt, str) for request in requests):
            raise RequestError("prompts of token ids need --endpoint completions: chats are text", "endpoint")


def clean_url(url: str) -> str:
    """The URL without trailing slash and /v1. Raises `ConfigError` where it is not the address of a server."""
    url = url.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        has_user = "@" in parts.netloc
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or an incomplete IPv6 address
        has_user = is_server = False
    if has_user:
        raise ConfigError("base_url must have no user and password, which results would show", param="base_url")
    if not is_server or "?" in url or "#" in url:
        raise ConfigError(f"base_url={url!r} must be like http://127.0.0.1:8000", param="base_url")
    return url


def key_header(api_key: str | None) -> dict[str, str]:
    """The header of the given key, or of the one in the environment."""
    key = api_key or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return {"Authorization": f"Bearer {key}"} if key else {}
