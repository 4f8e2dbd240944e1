"""Read by schemathesis: changes half of the generated requests so that they reach the engine.

They name the served model, ask for little, and have plain texts. The other half is as generated.
"""

import zlib
from typing import Any

import schemathesis

from scripts.clients.checks import MODEL

MOST = {"max_tokens": 8, "max_completion_tokens": 8, "min_tokens": 2, "n": 2}


def is_kept(value: dict[str, Any]) -> bool:
    return zlib.crc32(repr(sorted(value.items(), key=str)).encode()) % 2 == 0


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not isinstance(body, dict) or is_kept(body):
        return body
    changed: dict[str, Any] = {"model": MODEL} if isinstance(body.get("model"), str) else {}
    changed |= {name: min(body[name], most) for name, most in MOST.items() if type(body.get(name)) is int}
    if "text_1" in body or "queries" in body:
        return changed | {"text_1": "a", "text_2": [repr(body)[:100], "b"]}
    if isinstance(body.get("messages"), list):
        changed["messages"] = [{"role": "user", "content": repr(each)[:100]} for each in body["messages"][:4]]
    return body | changed


@schemathesis.hook
def map_path_parameters(context: Any, parameters: Any) -> Any:
    return parameters if not parameters or is_kept(parameters) else parameters | {"name": MODEL}
