"""Host: `AccessRecord`: one JSON log line per finished request, with its token counts and times, never its text."""

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
    """The statistics of one HTTP request: created when it starts, updated with every output or part, logged at its end.

    Token counts sum over all of its prompts. queue_s: from arrival at the engine to the first slot of the prompt that
    waited longest; first_token_s: to the first token of any prompt; None until then. model: None if none was found.
    """

    request_id: str
    route: str
    model: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter[str])
    queue_s: float | None = None
    first_token_s: float | None = None
    started_s: float = field(default_factory=time.monotonic)
    _seen_ids: set[str] = field(default_factory=set[str])

    def note(self, output: RequestOutput | EmbeddingRequestOutput) -> None:
        """Add an output, or one part of a streamed output."""
        if output.request_id not in self._seen_ids:
            self._seen_ids.add(output.request_id)
            self.prompt_tokens += len(output.prompt_token_ids)
            self.cached_tokens += output.num_cached_tokens
        for sample in output.outputs if isinstance(output, RequestOutput) else ():
            self.output_tokens += len(sample.token_ids)
            if sample.finish_reason is not None:
                self.finish_reasons[sample.finish_reason] += 1
        if output.metrics is not None:
            self._note_metrics(output.metrics)

    def _note_metrics(self, metrics: RequestMetrics) -> None:
        if metrics.started_s is not None:
            self.queue_s = max(self.queue_s or 0.0, metrics.started_s - metrics.arrival_s)
        if metrics.first_token_s is not None:
            first_s = metrics.first_token_s - metrics.arrival_s
            self.first_token_s = first_s if self.first_token_s is None else min(self.first_token_s, first_s)

    def as_json(self, status: int) -> dict[str, Any]:
        """The fields of the log line; times in milliseconds."""
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
            "total_ms": _ms(time.monotonic() - self.started_s),
        }


def log_access(config: ServerConfig, record: AccessRecord, status: int) -> None:
    """Write the log line of a request that ended with this status, if `log_requests` is on."""
    if config.log_requests:
        log.info("%s", orjson.dumps(record.as_json(status)).decode())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
