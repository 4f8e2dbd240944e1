"""Host: config.json of a model's folder, and the quantization scheme of its weights, which it names."""

from pathlib import Path
from typing import Any

from checkpoints.formats.bounded_json import read_object
from checkpoints.quantized.quant_config import CONFIG_KEYS, read_scheme
from checkpoints.quantized.quantized_weight import Scheme

_MAX_BYTES = 4_000_000


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed file; raises `CheckpointError` where it is missing or malformed."""
    return read_object(folder / "config.json", _MAX_BYTES)


def read_config_and_scheme(folder: Path) -> tuple[dict[str, Any], Scheme | None]:
    """The configuration without its quantization keys, and the scheme of quantized weights; None for plain weights."""
    parsed = read_config(folder)
    return {key: value for key, value in parsed.items() if key not in CONFIG_KEYS}, read_scheme(parsed, folder)
