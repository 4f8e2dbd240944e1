"""Host: reads the JSON files of a model's folder, and the texts of the special tokens in them."""

import re
from pathlib import Path
from typing import Any, cast

from checkpoints.errors import CheckpointError
from checkpoints.formats.bounded_json import read_object
from jaxserve.core.errors import ConfigError

MAX_CONFIG_BYTES = 32 << 20
SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty where the file is missing. Raises `ConfigError` with the path."""
    if not path.is_file():
        return {}
    try:
        return read_object(path, MAX_CONFIG_BYTES)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error


def token_text(token: Any) -> str | None:
    """The text of a special token, which these files give as text or as an object with `content`.

    None for anything else, half a surrogate pair included, which no text holds.
    """
    content = cast(dict[str, Any], token).get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) and not SURROGATE.search(content) else None
