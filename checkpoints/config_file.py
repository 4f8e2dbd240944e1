"""Host: config.json of a model's folder, and apart from it what it says of quantised weights."""

from pathlib import Path
from typing import Any

from checkpoints.formats.bounded_json import read_object
from checkpoints.quantization import CONFIG_KEYS, Fp8Scheme, read_scheme

_MAX_BYTES = 4_000_000


def read_config(folder: Path) -> dict[str, Any]:
    return read_object(folder / "config.json", _MAX_BYTES)


def read_config_and_scheme(folder: Path) -> tuple[dict[str, Any], Fp8Scheme | None]:
    """The configuration as that of plain weights, and how the weights are quantised, if they are."""
    parsed = read_config(folder)
    return {key: value for key, value in parsed.items() if key not in CONFIG_KEYS}, read_scheme(parsed, folder)
