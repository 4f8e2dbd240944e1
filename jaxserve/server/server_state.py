"""Host: `ServerState`: what all routes of a server share: its engine, its status, its models' names and counters."""

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from jaxserve.core.options.lora_request import Adapter
from jaxserve.engine.serving.engine_client import EngineClient
from jaxserve.server.client_templates import ClientTemplates
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.middleware import HttpCounts
from jaxserve.server.openai.requests.generation_fields import DEFAULTED
from jaxserve.server.openai.responses_api.response_store import ResponseStore
from jaxserve.server.server_config import ServerConfig


class ServerStatus(Enum):
    """starting: the model is being loaded and compiled. draining: new requests are refused, running ones may finish."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a request runs with. name: in its response. adapter: None: the model alone."""

    name: str
    adapter: Adapter | None = None


@dataclass(slots=True)
class ServerState:
    """model_names: the names of the one model; responses without a requested name use the first. created: seconds since
    the Unix epoch. num_active: requests in progress.

    client_templates: renders the chat templates of clients; None: they are trusted like the model's own. responses:
    those that clients asked to keep.
    """

    config: ServerConfig
    model_names: tuple[str, ...]
    status: ServerStatus = ServerStatus.STARTING
    created: int = field(default_factory=lambda: int(time.time()))
    num_active: int = 0
    http_counts: HttpCounts = field(default_factory=HttpCounts)
    client_templates: ClientTemplates | None = field(default_factory=ClientTemplates)
    responses: ResponseStore = field(init=False)
    _engine: EngineClient | None = None
    _defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.responses = ResponseStore(self.config.response_store_bytes)

    def open(self, engine: EngineClient) -> None:
        """Accept requests from now on."""
        self._engine = engine
        if self.config.generation_config == "auto":
            model_defaults = engine.info.generation_config
            named = {"max_tokens": model_defaults.get("max_new_tokens"), **model_defaults}
            self._defaults = {name: named[name] for name in DEFAULTED if named.get(name) is not None}
        if self.status is ServerStatus.STARTING:
            self.status = ServerStatus.READY

    @property
    def engine(self) -> EngineClient:
        """The engine. Raises `ApiError` with status 503 while the model is being loaded."""
        if self._engine is None:
            raise ApiError(503, "the model is being loaded", code="starting", headers={"Retry-After": "5"})
        return self._engine

    @property
    def has_engine(self) -> bool:
        return self._engine is not None

    @property
    def max_model_len(self) -> int:
        return self.engine.info.max_model_len

    def sampling_defaults(self, **endpoint: Any) -> Mapping[str, Any]:
        """Sampling parameters for requests that do not set them: the model's, which override the endpoint's."""
        return {**endpoint, **self._defaults}

    def special_ids(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The special tokens among these texts."""
        tokenizer = self.engine.tokenizer
        if tokenizer is None:
            return ()
        ids = [tokenizer.piece_to_id(text) for text in texts]
        return tuple(i for i in ids if i is not None and i in tokenizer.special_ids)

    @property
    def adapters(self) -> list[Adapter]:
        """The adapters that requests may name; none while the model is being loaded."""
        return [] if self._engine is None else list(self._engine.adapters)

    def parent(self, adapter: Adapter) -> str:
        """The name of the model that an adapter belongs to."""
        modules = (module for module in self.config.adapter_modules if module.request == adapter.request)
        return next((module.base_model_name for module in modules if module.base_model_name), self.model_names[0])

    def served_model(self, requested: str | None, lora_path: str | None = None) -> ServedModel:
        """The model that a request names, by default the first name's, or an adapter.

        lora_path: SGLang's field: an adapter by its name, next to the model's. Raises `ApiError` with status 404 for an
        unknown name, and 400 for two adapters.
        """
        model = ServedModel(self.model_names[0]) if requested is None else self._named(requested, "model")
        if lora_path is None:
            return model
        adapted = self._named(lora_path, "lora_path")
        if adapted.adapter is None:
            raise ApiError(400, "lora_path must be an adapter's name: leave it out for the model", param="lora_path")
        if model.adapter not in (None, adapted.adapter):
            raise ApiError(400, "lora_path and model name two adapters: send one", param="lora_path")
        return adapted

    def _named(self, name: str, field: str) -> ServedModel:
        if name in self.model_names:
            return ServedModel(name)
        if self._engine is None and name in {module.request.lora_name for module in self.config.adapter_modules}:
            self._check_ready()  # it will be there
        adapter = None if self._engine is None else self._engine.adapters.find(name)
        if adapter is None:
            raise ApiError(404, f"The model `{name[:200]}` does not exist.", param=field, code="model_not_found")
        return ServedModel(name, adapter)

    def _check_ready(self) -> None:
        if self.status is not ServerStatus.READY:
            seconds = "5" if self.status is ServerStatus.STARTING else "30"
            raise ApiError(
                503, f"the server is {self.status.value}", code=self.status.value, headers={"Retry-After": seconds}
            )

    @contextmanager
    def active_request(self) -> Generator[None]:
        """Counts a request that uses the engine as active. Raises `ApiError` with status 503 unless status is READY."""
        self._check_ready()
        self.num_active += 1
        try:
            yield
        finally:
            self.num_active -= 1
