"""Host: Mistral (arXiv 2310.06825): Llama's layers, all windowed in the first release, none in later ones.

Its GGUF files have the architecture 'llama': see `llama.py`.
"""

from collections.abc import Mapping
from typing import Any

from jaxserve.models.config import rope_hf
from jaxserve.models.config.common_sizes import hf_config, hf_sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import read_window, uniform
from jaxserve.models.config.model_config import ModelConfig

FAMILY = "mistral"


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'mistral'."""
    keys = ConfigKeys(config, "config.json", {"max_position_embeddings": 131_072, "num_key_value_heads": 8})
    sizes = hf_sizes(keys)
    keys.require("attention_bias", (False,), False)
    keys.require("hidden_act", ("silu",), "silu")
    rope, sizes = rope_hf.read_rope(keys, sizes)
    # If the key is absent, the window is the first release's; null means no window.
    window = read_window(keys, "sliding_window") if "sliding_window" in config else 4096
    keys.finish()
    return sizes.model(FAMILY, uniform(sizes.whole_kind(rope), window, sizes))


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` and transformers restore this model."""
    attention = config.kinds[0].attention
    return {
        **hf_config(config, "MistralForCausalLM", "mistral"),
        "hidden_act": "silu",
        "sliding_window": attention.window,
        "rope_parameters": rope_hf.hf_rope(attention.rope, config.head_dim, config.max_position),
    }
