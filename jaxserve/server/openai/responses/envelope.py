"""Host: `Envelope`: the fields that start every response: id, object, created, model, system_fingerprint."""

import time
from dataclasses import dataclass, field
from typing import Any

import jaxserve

FINGERPRINT = f"jaxserve-{jaxserve.__version__}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """response_id: as in "cmpl-…". model: the name that the client used. created: seconds since the Unix epoch."""

    response_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self, kind: str) -> dict[str, Any]:
        """kind: the value of `object`."""
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }
