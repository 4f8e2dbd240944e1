"""Host: `ServerConfig`: the validated options of the HTTP server; the engine's are in `EngineConfig`."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import option
from jaxserve.core.utf8_texts import is_utf8
from jaxserve.server.hosts import is_loopback, is_pattern, normalized
from jaxserve.server.lora_modules import LoraModule
from jaxserve.text.message_schema import ROLES
from jaxserve.text.reasoning.reasoning_tags import REASONING_TAGS
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS

TOOL_CALL_PARSERS = ("auto", "none", *TOOL_CALL_FORMATS)
REASONING_PARSERS = ("auto", "none", *REASONING_TAGS)
GENERATION_CONFIGS = ("auto", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PORT = 65535
TEXTS = "api_key served_model_name lora_modules lora_dirs allowed_origins allowed_host".split()  # which take several


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Options of one server. Times in seconds, sizes in bytes. Raises `ConfigError` for an invalid value."""

    host: str = option("127.0.0.1", "address to listen on; set --api-key with any other than a loopback address")
    port: int = option(8000, "port to listen on; 0: any free port")
    uds: str | None = option(None, "path of a Unix socket to listen on, instead of host and port")
    api_key: tuple[str, ...] = option(
        (), "key that clients must send; takes several; also JAXSERVE_API_KEY", is_shown=False
    )
    admin_key: str | None = option(
        None, "key of the administrative routes, which are off without one; also JAXSERVE_ADMIN_KEY",
        is_shown=False,
    )  # fmt: skip
    served_model_name: tuple[str, ...] = option(
        (), "model name in requests and responses; takes several; default: MODEL, of a path the last part"
    )
    generation_config: str = option(
        "auto", "auto: sampling defaults from the model's generation_config.json; none: OpenAI's", GENERATION_CONFIGS
    )
    lora_modules: tuple[str, ...] = option(
        (),
        "adapter that requests name as their model: NAME=PATH, or JSON with name, path and base_model_name; takes "
        "several; needs --enable-lora",
    )
    lora_dirs: tuple[str, ...] = option(
        (), "folder from which /v1/load_lora_adapter may load; takes several; without one it loads nothing"
    )
    lora_allow_remote: bool = option(
        False, "let /v1/load_lora_adapter fetch adapters from the Hugging Face Hub and gs:// buckets"
    )
    trust_request_chat_template: bool = option(
        False, "accept chat templates from clients; each is rendered in its own process with limits"
    )
    default_chat_template_kwargs: Mapping[str, Any] | None = option(
        None, 'default variables of the chat template, as in {"enable_thinking": false}'
    )
    enable_auto_tool_choice: bool = option(
        True, 'let models choose whether they call a tool; off: the tool choice "auto" is refused'
    )
    tool_call_parser: str = option(
        "auto", "how the model writes tool calls; auto: as its chat template shows", TOOL_CALL_PARSERS
    )
    reasoning_parser: str = option(
        "none",
        "tags of the model's reasoning, which becomes reasoning_content; none: it stays in the content; auto: as its "
        "chat template shows",
        REASONING_PARSERS,
    )
    response_role: str = option("assistant", "role of the messages in chat responses")
    allowed_origins: tuple[str, ...] = option((), "origins whose web pages may call the server (CORS)")
    allowed_host: tuple[str, ...] = option(
        (), "host name of this server in requests, or *.NAME, or * for any; takes several; loopback names need none"
    )
    root_path: str = option(
        "", "path under which a proxy serves this server, as in /api; the proxy may strip it or not"
    )
    ssl_keyfile: str | None = option(None, "file with the TLS key")
    ssl_certfile: str | None = option(None, "file with the TLS certificate")
    max_body_bytes: int = option(16 << 20, "maximum size of a request's body")
    max_header_bytes: int = option(64 << 10, "maximum total size of a request's headers")
    receive_timeout_s: float = option(30.0, "seconds for a request's headers to arrive, and as many for its body")
    send_timeout_s: float = option(60.0, "seconds after which a client that reads none of its response is disconnected")
    keep_alive_timeout_s: int = option(5, "seconds that an idle connection stays open")
    request_timeout_s: float | None = option(None, "maximum deadline of a request, and the default deadline")
    stall_timeout_s: float = option(
        300.0, "seconds without a finished step, while requests run, after which /health is 503"
    )
    shutdown_timeout: float = option(30.0, "seconds after SIGTERM for running requests to finish; 0: abort them")
    salt_by_key: bool = option(False, "share cached prefixes only among requests with the same API key")
    sse_keep_alive_s: float = option(15.0, "seconds without a token after which a stream gets a comment; 0: never")
    enable_force_include_usage: bool = option(False, "send usage in every chunk of every stream")
    return_tokens_as_token_ids: bool = option(
        False, "token_id:123 instead of a token's text in log-probabilities, unless a request says otherwise"
    )
    response_store_bytes: int = option(
        0, "memory for responses that clients ask to keep (store=true of /v1/responses); 0: none is kept"
    )
    public_metrics: bool = option(False, "serve /metrics without a key")
    warm_up: bool = option(True, "compile all shapes before the first request, instead of each when it is first needed")
    log_requests: bool = option(False, "log one line of JSON for every finished request, without its text")
    log_level: str = option("info", "minimum level of log messages", LOG_LEVELS)
    profile_dir: str = option("profile", "folder for the traces of /start_profile")

    def __post_init__(self) -> None:
        for name in TEXTS:
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
        _check_int("response_store_bytes", self.response_store_bytes, 0, 1 << 40)
        for name in ("receive_timeout_s", "send_timeout_s", "stall_timeout_s"):
            _check_seconds(name, getattr(self, name), positive=True)
        for name in ("shutdown_timeout", "sse_keep_alive_s"):
            _check_seconds(name, getattr(self, name))
        if self.request_timeout_s is not None:
            _check_seconds("request_timeout_s", self.request_timeout_s, positive=True)
        if not self.host or not self.response_role:
            raise ConfigError(
                "host and response_role must not be empty", param="response_role" if self.host else "host"
            )
        for name in self.served_model_name:
            if not name or self.served_model_name.count(name) > 1:
                fault = "is given twice" if name else "must not be empty"
                raise ConfigError(f"served_model_name={name!r} {fault}", param="served_model_name")
            if not is_utf8(name):
                raise ConfigError(f"served_model_name={name!r} is not UTF-8 text", param="served_model_name")
        names = [module.request.lora_name for module in self.adapter_modules]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"lora_modules: {repeated[0]!r} is given twice", param="lora_modules")
        for host in self.allowed_host:
            if not is_pattern(host):
                message = f"allowed_host={host!r} must be a host name or address without a port, *.NAME, or *"
                raise ConfigError(message, param="allowed_host")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"root_path={self.root_path!r} must begin with / and not end with it", param="root_path")
        if self.admin_key == "" or "" in self.api_key:
            name = "admin_key" if self.admin_key == "" else "api_key"
            raise ConfigError(f"{name} must not be empty", param=name)
        for name, keys in (("admin_key", [self.admin_key or ""]), ("api_key", self.api_key)):
            if any(key != key.strip() for key in keys):
                raise ConfigError(f"{name} must not begin or end with white space, which headers lose", param=name)
        if self.response_role in ROLES and self.response_role != "assistant":
            message = f"response_role={self.response_role!r} is the role of other messages: use a name of your own"
            raise ConfigError(message, param="response_role")
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ConfigError("ssl_keyfile and ssl_certfile go together", param="ssl_keyfile")
        variables: Any = self.default_chat_template_kwargs
        if variables is not None and not isinstance(variables, Mapping):
            raise ConfigError(
                "default_chat_template_kwargs must map names to values", param="default_chat_template_kwargs"
            )

    @property
    def adapter_modules(self) -> list[LoraModule]:
        """What `lora_modules` says."""
        return [LoraModule.read(text) for text in self.lora_modules]

    @property
    def public_paths(self) -> tuple[str, ...]:
        """The paths of routes that need no key."""
        return ("/health", "/ping", *(("/metrics",) if self.public_metrics else ()))

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can connect to the address."""
        return self.uds is None and not is_loopback(normalized(self.host))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    items: Iterable[Any] = cast(Iterable[Any], value) if isinstance(value, list | tuple) else (None,)
    texts = tuple(items)
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{name} must be text or a list of texts", param=name)
    return texts


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be an integer from {low} to {high}", param=name)


def _check_seconds(name: str, value: Any, *, positive: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < 0 or (positive and value == 0):
        raise ConfigError(
            f"{name}={value!r} must be finite seconds, {'more than' if positive else 'at least'} 0", param=name
        )
