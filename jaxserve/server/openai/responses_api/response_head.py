"""Host: `ResponseHead`: the fields of a response that are known before its output, and the response as JSON."""

import time
from dataclasses import dataclass, field
from typing import Any

from jaxserve.server.openai.responses.envelope import Usage

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """response_id: as in "resp_…". model: the name that the client used. echo: what the client asked for, with the
    values that were left out. created: seconds since the Unix epoch."""

    response_id: str
    model: str
    echo: Json
    created: int = field(default_factory=lambda: int(time.time()))

    def as_json(
        self,
        status: str,
        output: list[Json],
        *,
        usage: Json | None = None,
        error: Json | None = None,
        incomplete: str | None = None,
    ) -> Json:
        """The response in one of its states. incomplete: why the output ends early."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": error,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "model": self.model,
            "output": output,
            "usage": usage,
            **self.echo,
        }


def usage_json(usage: Usage, num_reasoning_tokens: int) -> Json:
    """By the names of responses. What the request adds to the prefix cache is not counted: 0."""
    counts = usage.as_json()
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {**counts["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": num_reasoning_tokens},
        "total_tokens": counts["total_tokens"],
    }
