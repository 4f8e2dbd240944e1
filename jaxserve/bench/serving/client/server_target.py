"""Host: `ServerTarget`, the server that is measured: where it is, and what it is asked."""

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
    """base_url: without /v1. path: of what is measured. extra: fields of every request beside those that are measured.

    timeout_s: for a whole request. headers hold the key, so they are not shown.
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
        """Raises `RequestError` for chats of token ids."""
        if self.is_chat and not all(isinstance(request.prompt, str) for request in requests):
            raise RequestError("chats have no prompts of token ids: use --endpoint completions", "endpoint")


def clean_url(url: str) -> str:
    """Without what requests add themselves. Raises `ConfigError` for what is no address of a server."""
    url = url.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        has_user = "@" in parts.netloc
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, half of an IPv6 address
        has_user = is_server = False
    if has_user:
        raise ConfigError("base_url must have no user and password, which results would show", param="base_url")
    if not is_server or "?" in url or "#" in url:
        raise ConfigError(f"base_url={url!r} must be like http://127.0.0.1:8000", param="base_url")
    return url


def key_header(api_key: str | None) -> dict[str, str]:
    """The key that is given, or one of the environment."""
    key = api_key or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return {"Authorization": f"Bearer {key}"} if key else {}
