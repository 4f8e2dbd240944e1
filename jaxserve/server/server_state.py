"""Host: `ServerState`, one model behind a server: what all routes share, and whether requests may come in."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from jaxserve.server.calls.client_templates import ClientTemplates
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.monitoring.http_counts import HttpCounts
from jaxserve.server.openai.requests.generation_fields import DEFAULTED
from jaxserve.server.server_config import ServerConfig

if TYPE_CHECKING:  # it imports jax
    from jaxserve.engine.async_llm import AsyncLLM

FINGERPRINT = "jaxserve-0.1.0"


class ServerStatus(Enum):
    """starting: the model is being loaded and compiled. draining: no new requests, the old ones may end."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass(slots=True)
class ServerState:
    """names: of the model, the first one in answers. created: seconds since 1970. num_active: requests under way.

    reason: why it is dead. client_templates: what renders those of requests; None: they are trusted as the model's own.
    """

    config: ServerConfig
    names: tuple[str, ...]
    state: ServerStatus = ServerStatus.STARTING
    created: int = field(default_factory=lambda: int(time.time()))
    num_active: int = 0
    http: HttpCounts = field(default_factory=HttpCounts)
    reason: str = ""
    client_templates: ClientTemplates | None = field(default_factory=ClientTemplates)
    _llm: "AsyncLLM | None" = None
    _defaults: Mapping[str, Any] = field(default_factory=dict)

    def open(self, llm: "AsyncLLM") -> None:
        """From now on requests may come in."""
        self._llm = llm
        if self.config.generation_config == "auto":
            theirs = llm.client.info.generation_config
            named = {"max_tokens": theirs.get("max_new_tokens"), **theirs}
            self._defaults = {name: named[name] for name in DEFAULTED if named.get(name) is not None}
        if self.state is ServerStatus.STARTING:
            self.state = ServerStatus.READY

    @property
    def llm(self) -> "AsyncLLM":
        """The engine. Raises `ApiError` of status 503 where there is none."""
        if self._llm is None:
            raise ApiError(503, "the model is being loaded", code="starting", headers={"Retry-After": "5"})
        return self._llm

    @property
    def is_open(self) -> bool:
        """Whether there is an engine."""
        return self._llm is not None

    @property
    def max_model_len(self) -> int:
        return self.llm.client.info.max_model_len

    def defaults(self, **own: Any) -> Mapping[str, Any]:
        """Sampling parameters of requests that do not name them: the model's own, then those of the surface."""
        return {**own, **self._defaults}

    def name_of(self, asked: str | None) -> str:
        """The model that a request names, by default the first; `ApiError` of status 404 for any other."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            raise ApiError(404, f"The model `{asked[:200]}` does not exist.", param="model", code="model_not_found")
        return asked

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around a request that asks something of the engine. Raises `ApiError` of status 503 unless it is ready."""
        if self.state is not ServerStatus.READY:
            seconds = "5" if self.state is ServerStatus.STARTING else "30"
            raise ApiError(
                503, f"the server is {self.state.value}", code=self.state.value, headers={"Retry-After": seconds}
            )
        self.num_active += 1
        try:
            yield
        finally:
            self.num_active -= 1
