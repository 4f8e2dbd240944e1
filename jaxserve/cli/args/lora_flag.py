"""Host: `--lora`, the adapter of all prompts of a command."""

import argparse
from pathlib import PurePath
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.lora_request import LoRARequest


def add_lora_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lora",
        metavar="PATH",
        help="adapter (LoRA) to add to the model: a folder, a Hugging Face id or gs://; turns --enable-lora on",
    )


def with_lora(options: dict[str, Any], path: str | None) -> dict[str, Any]:
    """The engine's options with room for that adapter alone, unless they say otherwise."""
    if path is None:
        return options
    if options.get("enable_lora") is False:
        raise ConfigError("--lora needs adapters: leave --no-enable-lora out", "enable_lora")
    return {"max_loras": 1, **options, "enable_lora": True}


def lora_request(path: str | None) -> LoRARequest | None:
    """The adapter, named after the last part of its path."""
    return None if path is None else LoRARequest(PurePath(path).name or path, path)
