"""Host: Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini (arXiv 2404.14219): Llama's layers with fused projections; LongRoPE
in the 128k versions; three quarters of each head rotated in Phi-4-mini."""

from collections.abc import Mapping
from typing import Any

from jaxserve.models.config import rope_gguf, rope_hf
from jaxserve.models.config.common_sizes import gguf_keys, gguf_sizes, hf_config, hf_sizes
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import read_window, uniform
from jaxserve.models.config.model_config import ModelConfig

FAMILY = "phi3"


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'phi3'."""
    keys = ConfigKeys(config, "config.json", {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5})
    sizes = hf_sizes(keys)
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        keys.require(name, (False,), False)
    for name in ("full_attn_mod", "interpolate_factor"):
        keys.require(name, (1,), 1)
    keys.require("hidden_act", ("silu",), "silu")
    rope, sizes = rope_hf.read_rope(keys, sizes)
    window = read_window(keys, "sliding_window")
    keys.finish(inert=("auto_map", "embd_pdrop", "resid_pdrop"))
    return sizes.model(FAMILY, uniform(sizes.whole_kind(rope), window, sizes))


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_tables: rope_gguf.Tables) -> ModelConfig:
    """From GGUF metadata with general.architecture 'phi3'; LongRoPE's tables are tensors."""
    keys = gguf_keys(metadata, FAMILY)
    sizes = gguf_sizes(keys, metadata, is_tied)
    rope, sizes = rope_gguf.read_rope(keys, sizes, rope_tables)
    window = read_window(keys, "attention.sliding_window")
    keys.finish()
    return sizes.model(FAMILY, uniform(sizes.whole_kind(rope), window, sizes))


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` and transformers restore this model."""
    attention = config.kinds[0].attention
    rope = rope_hf.hf_rope(attention.rope, config.head_dim, config.max_position)
    # transformers reads it outside the rope's mapping, and assumes 4096 if it is missing.
    original = rope.get("original_max_position_embeddings", config.max_position)
    return {
        **hf_config(config, "Phi3ForCausalLM", "phi3"),
        "hidden_act": "silu",
        "sliding_window": attention.window,
        "original_max_position_embeddings": original,
        "rope_parameters": rope,
    }
