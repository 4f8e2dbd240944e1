"""Host: Gemma 2 (arXiv 2408.00118): every second layer windowed, starting with the first, and soft caps of attention
scores and logits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import rope_gguf, rope_hf
from jaxserve.models.config.common_sizes import gguf_keys
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import GLOBAL, LOCAL, read_layer_types
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import gemma_common as gemma

FAMILY = "gemma2"
LARGEST = 46  # layers of 27B
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
DEFAULTS = {"head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": True, "sliding_window": 4096}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'gemma2'."""
    # An absent cap has its default; null means no cap.
    caps = {name: cap for name, cap in CAPS.items() if name not in config}
    keys = ConfigKeys(config, "config.json", DEFAULTS | caps)
    form = gemma.hf_form(keys)
    rope, sizes = rope_hf.read_rope(keys, form.sizes)
    form = replace(form, sizes=sizes)
    layer_types = read_layer_types(keys, alternating(sizes.num_layers))
    window = keys.take_int("sliding_window")
    keys.finish(inert=("cache_implementation",))
    return form.model(FAMILY, layer_types, rope, rope, window, has_qk_norm=False)


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_tables: rope_gguf.Tables) -> ModelConfig:
    """From GGUF metadata with general.architecture 'gemma2'."""
    if rope_tables:
        raise ConfigError(f"the GGUF file has {', '.join(rope_tables)}, which Gemma 2 does not use")
    keys = gguf_keys(metadata, FAMILY)
    form = gemma.gguf_form(keys, metadata, is_tied, LARGEST)
    rope, sizes = rope_gguf.read_rope(keys, form.sizes, rope_tables)
    keys.require("attention.sliding_window_pattern", (2,), 2)
    window = keys.take_int("attention.sliding_window", DEFAULTS["sliding_window"])
    attention_cap, final_cap = (keys.take_float(name, cap) for name, cap in CAPS.items())
    keys.finish()
    form = replace(form, sizes=sizes, attention_softcap=attention_cap, final_softcap=final_cap)
    return form.model(FAMILY, alternating(sizes.num_layers), rope, rope, window, has_qk_norm=False)


def alternating(num_layers: int) -> list[str]:
    """The layer types of a model of this many layers."""
    return [GLOBAL if i % 2 else LOCAL for i in range(num_layers)]


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` and transformers restore this model."""
    return {
        **gemma.hf_config(config, "Gemma2ForCausalLM", "gemma2"),
        "rope_parameters": rope_hf.hf_rope(config.kinds[0].attention.rope, config.head_dim, config.max_position),
    }
