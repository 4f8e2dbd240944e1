"""Host: reads JSON from untrusted files and refuses what would grow too large in memory.

Four bytes of text (`[],[`) can become a hundred in Python, so a limit on the length is not enough. Model files have at
most one bracket per 15 bytes (the shortest safetensors entry, with three, has 47); denser text is refused unparsed.
"""

import json
import re
from pathlib import Path
from typing import Any, cast

from checkpoints.errors import CheckpointError

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_FREE_BRACKETS, _BYTES_PER_BRACKET = 1000, 15


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice!r} appears twice")
    return table


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `raw`; errors begin with `where`. Repeated keys are refused."""
    skeleton = _STRING.sub(b"", raw)
    if skeleton.count(b"[") + skeleton.count(b"{") > _FREE_BRACKETS + len(raw) // _BYTES_PER_BRACKET:
        raise CheckpointError(f"{where} holds too many nested values to be a model's JSON")
    try:
        value: Any = json.loads(raw, object_pairs_hook=_unique)
    except RecursionError as error:
        raise CheckpointError(f"{where} is nested too deeply to be a model's JSON") from error
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} must hold a JSON object")
    return cast(dict[str, Any], value)


def read_object(path: Path, max_bytes: int) -> dict[str, Any]:
    """The JSON object in a file of at most `max_bytes`."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes > max_bytes:
            raise CheckpointError(f"{path}: is {num_bytes} bytes long; at most {max_bytes} are read")
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be opened ({error.strerror})") from error
    return parse_object(raw, f"{path}:")
