"""Host: the families that jaxserve knows, and the way from a checkpoint's own description to a `ModelConfig`."""

from collections.abc import Mapping
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models import gemma3, llama
from jaxserve.models.config import ModelConfig

# model_type in config.json, general.architecture in GGUF → family module
HF_FAMILIES = {"llama": llama, "gemma3_text": gemma3, "gemma3": gemma3}
GGUF_FAMILIES = {"llama": llama, "gemma3": gemma3}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """A ModelConfig from a parsed config.json."""
    return _family(HF_FAMILIES, config.get("model_type"), "model_type in config.json").from_hf(config)


def from_gguf(
    metadata: Mapping[str, Any], *, is_tied: bool, rope_factors: tuple[float, ...] | None = None
) -> ModelConfig:
    """A ModelConfig from GGUF metadata; ties and rope factors show only in the tensors."""
    family = _family(GGUF_FAMILIES, metadata.get("general.architecture"), "general.architecture in the GGUF header")
    return family.from_gguf(metadata, is_tied, rope_factors)


def _family(families: dict[str, Any], name: Any, where: str) -> Any:
    if name not in families:
        known = ", ".join(sorted(families))
        raise ConfigError(f"architecture {name!r} ({where}) is not supported; supported: {known}", param="model")
    return families[name]
