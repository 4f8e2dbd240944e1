"""Read by schemathesis: half of the bodies name the served model and ask for little, so that they reach the engine."""

import zlib
from typing import Any

import schemathesis

from scripts.clients.checks import MODEL

MOST = {"max_tokens": 8, "max_completion_tokens": 8, "min_tokens": 2, "n": 2}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not isinstance(body, dict) or zlib.crc32(repr(sorted(body.items(), key=str)).encode()) % 2:
        return body
    changed = {"model": MODEL} if isinstance(body.get("model"), str) else {}
    changed |= {name: min(body[name], most) for name, most in MOST.items() if type(body.get(name)) is int}
    return body | changed
