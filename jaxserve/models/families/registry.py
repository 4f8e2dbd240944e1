"""Host: the supported families, and the conversion between a checkpoint's configuration and a `ModelConfig`."""

from collections.abc import Mapping
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import gemma2, gemma3, llama, mistral, phi3
from jaxserve.models.families.qwen import QWEN2, QWEN3

# ModelConfig.family → the family's module
FAMILIES = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "phi3": phi3,
}
# model_type in config.json, general.architecture in GGUF → family
HF_FAMILIES = {**{family: family for family in FAMILIES}, "gemma3_text": "gemma3"}
# Mistral's GGUF files declare the architecture llama.
GGUF_FAMILIES = {family: family for family in FAMILIES if family != "mistral"}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """A ModelConfig from a parsed config.json."""
    return _family(HF_FAMILIES, config.get("model_type"), "model_type in config.json").from_hf(config)


def from_gguf(
    metadata: Mapping[str, Any], *, is_tied: bool, rope_tables: Mapping[str, tuple[float, ...]] | None = None
) -> ModelConfig:
    """A ModelConfig from GGUF metadata. is_tied, rope_tables (by tensor name): from the tensors, not the header."""
    family = _family(GGUF_FAMILIES, metadata.get("general.architecture"), "general.architecture in the GGUF header")
    return family.from_gguf(metadata, is_tied, rope_tables or {})


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json of a model, from which transformers and `from_hf` restore it."""
    return FAMILIES[config.family].to_hf(config)


def _family(families: dict[str, str], name: Any, where: str) -> Any:
    if not isinstance(name, str) or name not in families:
        known = ", ".join(sorted(families))
        raise ConfigError(f"architecture {name!r} ({where}) is not supported; supported: {known}", param="model")
    return FAMILIES[families[name]]
