"""Host: Qwen 2 and 2.5 (arXiv 2412.15115), with biases of queries, keys and values, and Qwen 3 (arXiv 2505.09388), with
norms of queries and keys instead."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxserve.models.config import rope_gguf, rope_hf
from jaxserve.models.config.common_sizes import gguf_keys, gguf_sizes, hf_config, hf_sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import (
    GLOBAL,
    LOCAL,
    by_type,
    hf_layer_types,
    read_layer_types,
    read_window,
    uniform,
)
from jaxserve.models.config.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Qwen:
    """One generation; `family` is its model_type in config.json and its architecture in GGUF.

    attention: fields of `GroupedAttention`. defaults: the vendor's, of absent keys of config.json.
    """

    family: str
    architecture: str
    attention: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def from_hf(self, config: Mapping[str, Any]) -> ModelConfig:
        """From config.json."""
        keys = ConfigKeys(config, "config.json", {"max_position_embeddings": 32_768, **self.defaults})
        sizes = hf_sizes(keys)
        keys.require("attention_bias", (False,), False)
        keys.require("hidden_act", ("silu",), "silu")
        keys.require("use_mrope", (False,), False)
        rope, sizes = rope_hf.read_rope(keys, sizes)
        window = read_window(keys, "sliding_window") if "sliding_window" in config else 4096
        if not keys.require("use_sliding_window", (True, False), False):
            window = None
        # Layers from max_window_layers on are windowed, those before it are not.
        first = keys.take_int("max_window_layers", 28, minimum=0)
        default = [LOCAL if window and i >= first else GLOBAL for i in range(sizes.num_layers)]
        layer_types = read_layer_types(keys, default)
        keys.finish()
        return sizes.model(self.family, by_type(layer_types, sizes.whole_kind(rope, **self.attention), window))

    def from_gguf(self, metadata: Mapping[str, Any], is_tied: bool, rope_tables: rope_gguf.Tables) -> ModelConfig:
        """From GGUF metadata; no layer is windowed."""
        keys = gguf_keys(metadata, self.family)
        sizes = gguf_sizes(keys, metadata, is_tied)
        rope, sizes = rope_gguf.read_rope(keys, sizes, rope_tables)
        keys.finish()
        return sizes.model(self.family, uniform(sizes.whole_kind(rope, **self.attention), None, sizes))

    def to_hf(self, config: ModelConfig) -> dict[str, Any]:
        """The config.json from which `from_hf` and transformers restore this model."""
        layers = hf_layer_types(config)
        return {
            **hf_config(config, self.architecture, self.family),
            "hidden_act": "silu",
            "use_sliding_window": layers["sliding_window"] is not None,
            **layers,
            "rope_parameters": rope_hf.hf_rope(config.kinds[0].attention.rope, config.head_dim, config.max_position),
        }


QWEN2 = Qwen("qwen2", "Qwen2ForCausalLM", {"has_bias": True}, {})
QWEN3 = Qwen("qwen3", "Qwen3ForCausalLM", {"has_qk_norm": True}, {"head_dim": 128})
