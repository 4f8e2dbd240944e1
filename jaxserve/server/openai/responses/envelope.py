"""Host: `Envelope`, the fields with which every answer begins."""

import time
from dataclasses import dataclass, field
from typing import Any

from jaxserve.server.server_state import FINGERPRINT


@dataclass(frozen=True, slots=True)
class Envelope:
    """answer_id: as in "cmpl-…". model: the name that the client used. created: seconds since 1970."""

    answer_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self, kind: str) -> dict[str, Any]:
        """kind: the `object` of the answer."""
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }
