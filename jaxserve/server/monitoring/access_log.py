"""Host: one line of JSON for each request that has ended, where that is asked for: what it cost, never what it said."""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from jaxserve.core.outputs import EmbeddingRequestOutput, RequestMetrics, RequestOutput
from jaxserve.server.server_config import ServerConfig

log = logging.getLogger("jaxserve.requests")


@dataclass(slots=True)
class AccessRecord:
    """What is known of one HTTP request; made when it begins, told of every output or piece, and logged at its end.

    Tokens are those of all of its prompts. queue_s, first_token_s: from the call to the engine to the first slot of the
    prompt that waited longest, and to the first token of any; None until then. model: None where none was found.
    """

    request_id: str
    route: str
    model: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)
    queue_s: float | None = None
    first_token_s: float | None = None
    begun_s: float = field(default_factory=time.monotonic)
    _seen: set[str] = field(default_factory=set)

    def note(self, output: RequestOutput | EmbeddingRequestOutput) -> None:
        """One more output, or piece of one."""
        if output.request_id not in self._seen:
            self._seen.add(output.request_id)
            self.prompt_tokens += len(output.prompt_token_ids)
            self.cached_tokens += output.num_cached_tokens
        for sample in output.outputs if isinstance(output, RequestOutput) else ():
            self.output_tokens += len(sample.token_ids)
            if sample.finish_reason is not None:
                self.finish_reasons[sample.finish_reason] += 1
        if output.metrics is not None:
            self._note_moments(output.metrics)

    def _note_moments(self, moments: RequestMetrics) -> None:
        if moments.started_s is not None:
            self.queue_s = max(self.queue_s or 0.0, moments.started_s - moments.arrival_s)
        if moments.first_token_s is not None:
            first_s = moments.first_token_s - moments.arrival_s
            self.first_token_s = first_s if self.first_token_s is None else min(self.first_token_s, first_s)

    def as_json(self, status: int) -> dict[str, Any]:
        """The line's fields; times in milliseconds."""
        return {
            "request_id": self.request_id,
            "route": self.route,
            "model": self.model,
            "status": status,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "finish_reasons": dict(self.finish_reasons),
            "queue_ms": _ms(self.queue_s),
            "ttft_ms": _ms(self.first_token_s),
            "total_ms": _ms(time.monotonic() - self.begun_s),
        }


def log_served(config: ServerConfig, served: AccessRecord, status: int) -> None:
    """Write the line of a request that has ended with this status, if lines are asked for."""
    if config.log_requests:
        log.info("%s", orjson.dumps(served.as_json(status)).decode())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
