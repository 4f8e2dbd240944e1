"""Host: Llama 2 and 3.x, and models of the same form (such as SmolLM2)."""

from collections.abc import Mapping
from typing import Any

from jaxserve.models.config import rope_gguf, rope_hf
from jaxserve.models.config.common_sizes import gguf_keys, gguf_sizes, hf_config, hf_sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import read_window, uniform
from jaxserve.models.config.model_config import ModelConfig

FAMILY = "llama"


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'llama'."""
    keys = ConfigKeys(config, "config.json", {"max_position_embeddings": 2048})
    sizes = hf_sizes(keys)
    keys.require("attention_bias", (False,), False)
    keys.require("mlp_bias", (False,), False)
    keys.require("hidden_act", ("silu",), "silu")
    keys.require("rope_interleaved", (False,), False)
    rope, sizes = rope_hf.read_rope(keys, sizes)
    keys.finish(inert=("is_llama_config",))
    return sizes.model(FAMILY, uniform(sizes.whole_kind(rope), None, sizes))


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_tables: rope_gguf.Tables) -> ModelConfig:
    """From GGUF metadata with general.architecture 'llama', which Mistral's files have too: only these have a window.

    Llama 3's rope scaling is a tensor of factors.
    """
    keys = gguf_keys(metadata, "llama")
    sizes = gguf_sizes(keys, metadata, is_tied)
    # Queries and keys are stored in pairs over the whole head, so the whole head is rotated.
    keys.require("rope.dimension_count", (sizes.head_dim,), sizes.head_dim)
    rope, sizes = rope_gguf.read_rope(keys, sizes, rope_tables)
    window = read_window(keys, "attention.sliding_window")
    keys.finish()
    layers = uniform(sizes.whole_kind(rope), window, sizes)
    return sizes.model("mistral" if layers[0].attention.window else FAMILY, layers)


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` and transformers restore this model."""
    return {
        **hf_config(config, "LlamaForCausalLM", "llama"),
        "hidden_act": "silu",
        "rope_parameters": rope_hf.hf_rope(config.kinds[0].attention.rope, config.head_dim, config.max_position),
    }
