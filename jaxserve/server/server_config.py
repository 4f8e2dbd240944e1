"""Host: `ServerConfig`, every option of the HTTP server, checked once; the engine's own are in `EngineConfig`."""

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import option

GENERATION_CONFIGS = ("auto", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Options of one server. Times are in seconds, sizes in bytes."""

    host: str = option("127.0.0.1", "address to listen on; with another than a loopback address, set --api-key")
    port: int = option(8000, "port to listen on; 0: any that is free")
    uds: str | None = option(None, "path of a Unix socket to listen on, instead of host and port")
    api_key: tuple[str, ...] = option(
        (), "key that clients must send; several may follow; also JAXSERVE_API_KEY", is_shown=False
    )
    admin_key: str | None = option(
        None, "key of the routes that change something; they are off without one; also JAXSERVE_ADMIN_KEY",
        is_shown=False,
    )  # fmt: skip
    served_model_name: tuple[str, ...] = option((), "what clients call the model; several may follow; default: MODEL")
    generation_config: str = option(
        "auto", "auto: sampling defaults from the model's generation_config.json; none: OpenAI's", GENERATION_CONFIGS
    )
    trust_request_chat_template: bool = option(
        False, "let clients send chat templates; each is rendered in a process of its own, within limits"
    )
    default_chat_template_kwargs: Mapping[str, Any] | None = option(
        None, 'variables of the chat template for requests that do not set them, as in {"enable_thinking": false}'
    )
    response_role: str = option("assistant", "role of the messages that chats are answered with")
    allowed_origins: tuple[str, ...] = option((), "origins whose pages may call the server (CORS)")
    root_path: str = option("", "path under which a proxy shows the server, as in /api; stripped or not")
    ssl_keyfile: str | None = option(None, "file with the TLS key")
    ssl_certfile: str | None = option(None, "file with the TLS certificate")
    max_body_bytes: int = option(16 << 20, "longest body of a request")
    max_header_bytes: int = option(64 << 10, "all headers of a request together")
    receive_timeout_s: float = option(30.0, "seconds for a request's headers, and again for its body, to arrive")
    send_timeout_s: float = option(60.0, "seconds that a client may leave what was sent to it unread")
    keep_alive_timeout_s: int = option(5, "seconds that an idle connection stays open")
    request_timeout_s: float | None = option(None, "longest deadline of a request, and that of those without one")
    stall_timeout_s: float = option(
        300.0, "seconds without a finished step, while there is work, after which /health is 503"
    )
    shutdown_timeout: float = option(30.0, "seconds after SIGTERM in which requests may end; 0: abort them")
    salt_by_key: bool = option(False, "share cached prefixes among requests of one API key only")
    sse_keep_alive_s: float = option(15.0, "seconds without a token after which a stream gets a comment; 0: never")
    enable_force_include_usage: bool = option(False, "send usage in every stream")
    public_metrics: bool = option(False, "serve /metrics without a key")
    warm_up: bool = option(True, "compile everything before the first request; else each shape when it is needed")
    log_requests: bool = option(False, "log one line of JSON for every request that ends; never its text")
    log_level: str = option("info", "what is logged", LOG_LEVELS)
    profile_dir: str = option("profile", "folder for the traces of /start_profile")

    def __post_init__(self) -> None:
        for name in ("api_key", "served_model_name", "allowed_origins"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata.get("choices")
            if choices and value not in choices:
                raise ConfigError(f"{f.name}={value!r}: must be one of {', '.join(choices)}", param=f.name)
            if isinstance(f.default, bool) and not isinstance(value, bool):
                raise ConfigError(f"{f.name}={value!r} must be true or false", param=f.name)
            if f.type in (str, str | None) and not isinstance(value, f.type):
                raise ConfigError(f"{f.name}={value!r} must be text", param=f.name)
        _check_int("port", self.port, 0, MAX_PORT)
        _check_int("max_body_bytes", self.max_body_bytes, 1024, 1 << 31)
        _check_int("max_header_bytes", self.max_header_bytes, 1024, 1 << 24)
        _check_int("keep_alive_timeout_s", self.keep_alive_timeout_s, 1, 3600)
        for name in ("receive_timeout_s", "send_timeout_s", "stall_timeout_s"):
            _check_seconds(name, getattr(self, name), above=True)
        for name in ("shutdown_timeout", "sse_keep_alive_s"):
            _check_seconds(name, getattr(self, name))
        if self.request_timeout_s is not None:
            _check_seconds("request_timeout_s", self.request_timeout_s, above=True)
        if not self.host or not self.response_role:
            raise ConfigError(
                "host and response_role must not be empty", param="response_role" if self.host else "host"
            )
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"root_path={self.root_path!r} must begin with / and not end with it", param="root_path")
        if self.admin_key == "" or "" in self.api_key:
            name = "admin_key" if self.admin_key == "" else "api_key"
            raise ConfigError(f"{name} must not be empty", param=name)
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ConfigError("ssl_keyfile and ssl_certfile go together", param="ssl_keyfile")
        if self.default_chat_template_kwargs is not None and not isinstance(self.default_chat_template_kwargs, Mapping):
            raise ConfigError(
                "default_chat_template_kwargs must map names to values", param="default_chat_template_kwargs"
            )

    @property
    def is_open_to_others(self) -> bool:
        """Whether other machines may reach it."""
        if self.uds is not None or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name
            return True


def _texts(name: str, value: Any) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(item, str) for item in values):
        raise ConfigError(f"{name} must be text or a list of texts", param=name)
    return tuple(values)


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be an integer from {low} to {high}", param=name)


def _check_seconds(name: str, value: Any, *, above: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (above and value == 0):
        raise ConfigError(
            f"{name}={value!r} must be finite seconds, {'more than' if above else 'at least'} 0", param=name
        )
