"""Host: the config.json of EAGLE-3 drafts, whose layer is one of Llama."""

from collections.abc import Mapping
from typing import Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.eagle_config import NUM_TAPS, EagleConfig
from jaxserve.models.families import llama

TAPS = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config"
"""SpecForge's object, whose taps name the layers of the target whose outputs the draft reads: SGLang adds 1 to each. At
the top level, where vLLM reads them, they name layers by their inputs, as `EagleConfig` does."""
OWN_KEYS = (TAPS, NESTED, "draft_vocab_size", "target_hidden_size")


def from_hf(config: Mapping[str, Any]) -> EagleConfig:
    """Raises ConfigError with what is not supported."""
    keys = ConfigKeys(config, "config.json")
    vocab_size = keys.take_int("vocab_size")
    draft_vocab_size = keys.take_int("draft_vocab_size", vocab_size)
    keys.require("num_hidden_layers", (1,), 1)
    if draft_vocab_size > vocab_size:
        raise ConfigError(f"config.json: draft_vocab_size={draft_vocab_size} is more than vocab_size={vocab_size}")
    taps, nested = _taps(keys.take(TAPS, None)), _taps(keys.take_mapping(NESTED).get(TAPS))
    if taps is None and nested is not None:
        taps = tuple(layer + 1 for layer in nested)
    of_layer = {name: value for name, value in config.items() if name not in OWN_KEYS}
    own = {"num_hidden_layers": 1, "tie_word_embeddings": False, "vocab_size": draft_vocab_size}
    return EagleConfig(llama.from_hf(of_layer | own), taps, vocab_size)


def to_hf(config: EagleConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` restores it."""
    own = {"vocab_size": config.vocab_size, "draft_vocab_size": config.model.vocab_size}
    taps = {} if config.tap_layers is None else {TAPS: list(config.tap_layers)}
    return llama.to_hf(config.model) | own | taps | {"architectures": ["LlamaForCausalLMEagle3"]}


def _taps(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    layers = cast(list[Any], value) if isinstance(value, list) else []
    are_layers = all(type(layer) is int and layer >= 0 for layer in layers)
    if not are_layers or len(layers) != NUM_TAPS or len(set(layers)) != NUM_TAPS:
        raise ConfigError(f"config.json: {TAPS}={value!r} must list {NUM_TAPS} different layers")
    return tuple(layers)
