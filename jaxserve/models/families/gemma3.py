"""Host: Gemma 3 (arXiv 2503.19786): five windowed layers to one global, each kind with its rope base; q/k norms."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.common_sizes import gguf_keys
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import GLOBAL, LOCAL, read_layer_types
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.config.rope import Rope
from jaxserve.models.config.rope_gguf import Tables
from jaxserve.models.config.rope_hf import hf_rope, make_rope
from jaxserve.models.families import gemma_common as gemma

FAMILY = "gemma3"
LARGEST = 62  # layers of 27B
LOCAL_BASE = 10_000.0
GLOBAL_BASE = 1_000_000.0
PATTERN = 6  # layers 5, 11, 17, … are global
DEFAULTS = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'gemma3_text', or the text part of 'gemma3' (images are not supported)."""
    if "text_config" in config:
        outer = {
            name: config[name] for name in ("bos_token_id", "eos_token_id", "dtype", "torch_dtype") if name in config
        }
        config = {**outer, **{k: v for k, v in config["text_config"].items() if v is not None or k not in outer}}
    keys = ConfigKeys(config, "config.json", DEFAULTS)
    form = gemma.hf_form(keys)
    pattern = keys.take_int("_sliding_window_pattern", PATTERN)
    pattern = keys.take_int("sliding_window_pattern", pattern)
    layer_types = read_layer_types(keys, layer_types_of(form.sizes.num_layers, pattern))
    local, glob = _ropes(keys, form.sizes.head_dim, form.sizes.max_position)
    window = keys.take_int("sliding_window")
    keys.finish(inert=("cache_implementation",))
    return form.model(FAMILY, layer_types, local, glob, window, has_qk_norm=True)


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_tables: Tables) -> ModelConfig:
    """From GGUF metadata with general.architecture 'gemma3'."""
    if rope_tables:
        raise ConfigError(f"the GGUF file has {', '.join(rope_tables)}, which Gemma 3 does not use")
    keys = gguf_keys(metadata, FAMILY)
    form = gemma.gguf_form(keys, metadata, is_tied, LARGEST)
    glob = {"rope_theta": keys.take("rope.freq_base", GLOBAL_BASE)}
    if keys.require("rope.scaling.type", ("none", "linear"), "none") == "linear":
        glob |= {"rope_type": "linear", "factor": keys.take("rope.scaling.factor")}
    rope, _ = make_rope(glob, form.sizes.head_dim, form.sizes.max_position)
    local = Rope(keys.take_float("rope.freq_base_swa", LOCAL_BASE))
    layer_types = layer_types_of(form.sizes.num_layers, PATTERN)
    window = keys.take_int("attention.sliding_window")
    form = replace(form, final_softcap=keys.take_float("final_logit_softcapping", None))
    keys.finish()
    return form.model(FAMILY, layer_types, local, rope, window, has_qk_norm=True)


def layer_types_of(num_layers: int, pattern: int) -> list[str]:
    """The layer types of a model of this many layers, of which each `pattern`-th is global."""
    return [LOCAL if (i + 1) % pattern else GLOBAL for i in range(num_layers)]


def _ropes(keys: ConfigKeys, head_dim: int, max_position: int) -> tuple[Rope, Rope]:
    """(local, global): from `rope_parameters` by layer type, or from the older flat keys."""
    local_base = keys.take("rope_local_base_freq", LOCAL_BASE)
    global_base = keys.take("rope_theta", GLOBAL_BASE)
    scaling, parameters = keys.take_mapping("rope_scaling"), keys.take_mapping("rope_parameters")
    if unknown := sorted(parameters.keys() - {LOCAL, GLOBAL}):
        raise ConfigError(f"config.json: rope_parameters {unknown} belong to no layer type", param="rope_parameters")
    by_type = ConfigKeys(parameters, "rope_parameters in config.json")
    local = {"rope_theta": local_base, **by_type.take_mapping(LOCAL)}
    glob = {"rope_theta": global_base, **scaling, **by_type.take_mapping(GLOBAL)}
    return make_rope(local, head_dim, max_position)[0], make_rope(glob, head_dim, max_position)[0]


def to_hf(config: ModelConfig) -> dict[str, Any]:
    """The config.json from which `from_hf` and transformers restore this model."""
    attentions = [kind.attention for kind in config.kinds]
    ropes = {GLOBAL if attention.window is None else LOCAL: attention.rope for attention in attentions}
    return {
        **gemma.hf_config(config, "Gemma3ForCausalLM", "gemma3_text"),
        "rope_parameters": {n: hf_rope(rope, config.head_dim, config.max_position) for n, rope in ropes.items()},
    }
