"""Host: Gemma 3 (arXiv 2503.19786): five windowed layers to one global, a rope base for each, q/k norms, norms
before and after each sublayer."""

from collections.abc import Mapping
from typing import Any

from jaxserve.core.errors import ConfigError
from jaxserve.models.config import LayerKind, ModelConfig, Rope
from jaxserve.models.keys import Keys, token_ids
from jaxserve.models.rope_config import make_rope

FAMILY = "gemma3"
LOCAL_BASE = 10_000.0
GLOBAL_BASE = 1_000_000.0
PATTERN = 6  # layers 5, 11, 17, … are global
KINDS = {"sliding_attention": 0, "full_attention": 1}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'gemma3_text', or the text part of one with 'gemma3' (images are not read)."""
    if "text_config" in config:
        outer = {
            name: config[name] for name in ("bos_token_id", "eos_token_id", "dtype", "torch_dtype") if name in config
        }
        config = {**outer, **{k: v for k, v in config["text_config"].items() if v is not None or k not in outer}}
    keys = Keys(config, "config.json")
    d_model, head_dim = keys.take_int("hidden_size"), keys.take_int("head_dim", 256)
    num_layers = keys.take_int("num_hidden_layers")
    keys.require("attention_bias", (False,), False)
    keys.require("hidden_activation", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    keys.require("hidden_act", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    keys.require("use_bidirectional_attention", (False,), False)
    pattern = keys.take_int("_sliding_window_pattern", PATTERN)
    pattern = keys.take_int("sliding_window_pattern", pattern)
    default = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(num_layers)]
    layer_types = keys.take("layer_types", default)
    if unknown := sorted(set(layer_types) - KINDS.keys()):
        raise ConfigError(f"config.json: layer_types {unknown} are not supported", param="layer_types")
    local, glob = _ropes(keys, head_dim)
    model = _model(
        layer_types,
        local,
        glob,
        window=keys.take_int("sliding_window", 4096),
        vocab_size=keys.take_int("vocab_size", 262_208),
        num_layers=num_layers,
        d_model=d_model,
        d_mlp=keys.take_int("intermediate_size"),
        num_heads=keys.take_int("num_attention_heads", 8),
        num_kv_heads=keys.take_int("num_key_value_heads", 4),
        head_dim=head_dim,
        max_position=keys.take_int("max_position_embeddings", 131_072),
        norm_eps=keys.take("rms_norm_eps", 1e-6),
        is_tied=keys.take("tie_word_embeddings", True),
        attention_scale=keys.take("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=keys.take("attn_logit_softcapping", None),
        final_softcap=keys.take("final_logit_softcapping", None),
        dtype=config.get("dtype") or config.get("torch_dtype"),
        bos_id=config.get("bos_token_id"),
        eos_ids=token_ids(config.get("eos_token_id")),
    )
    keys.finish(inert=("cache_implementation",))
    return model


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_factors: tuple[float, ...] | None) -> ModelConfig:
    """From GGUF metadata with general.architecture 'gemma3'."""
    if rope_factors is not None:
        raise ConfigError("the GGUF file has rope_freqs.weight, which Gemma 3 does not use", param="rope_freqs.weight")
    own = {k.removeprefix("gemma3."): v for k, v in metadata.items() if k.startswith("gemma3.")}
    keys = Keys(own, "the GGUF header (gemma3.*)")
    head_dim, num_layers = keys.take_int("attention.key_length"), keys.take_int("block_count")
    keys.require("attention.value_length", (head_dim,), head_dim)
    glob = {"rope_theta": keys.take("rope.freq_base", GLOBAL_BASE)}
    if keys.require("rope.scaling.type", ("none", "linear"), "none") == "linear":
        glob |= {"rope_type": "linear", "factor": keys.take("rope.scaling.factor")}
    d_model, num_heads = keys.take_int("embedding_length"), keys.take_int("attention.head_count")
    # The header omits the query scale; every released size but 27B (62 layers) divides by the head dim.
    query_scalar = d_model // num_heads if num_layers == 62 else head_dim
    layer_types = ["full_attention" if (i + 1) % PATTERN == 0 else "sliding_attention" for i in range(num_layers)]
    model = _model(
        layer_types,
        Rope(keys.take("rope.freq_base_swa", LOCAL_BASE)),
        make_rope(glob, head_dim),
        window=keys.take_int("attention.sliding_window"),
        vocab_size=keys.take_int("vocab_size", len(metadata.get("tokenizer.ggml.tokens", ()))),
        num_layers=num_layers,
        d_model=d_model,
        d_mlp=keys.take_int("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.take_int("attention.head_count_kv"),
        head_dim=head_dim,
        max_position=keys.take_int("context_length"),
        norm_eps=keys.take("attention.layer_norm_rms_epsilon"),
        is_tied=is_tied,
        attention_scale=query_scalar**-0.5,
        final_softcap=keys.take("final_logit_softcapping", None),
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=token_ids(metadata.get("tokenizer.ggml.eos_token_id")),
    )
    keys.finish()
    return model


def _ropes(keys: Keys, head_dim: int) -> tuple[Rope, Rope]:
    """(local, global): from `rope_parameters` by layer type, or from the older flat keys."""
    local_base = keys.take("rope_local_base_freq", LOCAL_BASE)
    global_base = keys.take("rope_theta", GLOBAL_BASE)
    scaling, parameters = keys.take_mapping("rope_scaling"), keys.take_mapping("rope_parameters")
    if unknown := sorted(parameters.keys() - KINDS.keys()):
        raise ConfigError(f"config.json: rope_parameters {unknown} belong to no layer type", param="rope_parameters")
    local = {"rope_theta": local_base, **parameters.get("sliding_attention", {})}
    glob = {"rope_theta": global_base, **scaling, **parameters.get("full_attention", {})}
    return make_rope(local, head_dim), make_rope(glob, head_dim)


def _model(layer_types: list[str], local: Rope, glob: Rope, *, window: int, d_model: int, **sizes: Any) -> ModelConfig:
    kinds = (LayerKind("local", local, window), LayerKind("global", glob))
    used = sorted({KINDS[t] for t in layer_types})
    return ModelConfig(
        family=FAMILY,
        kinds=tuple(kinds[k] for k in used),
        layer_kinds=tuple(used.index(KINDS[t]) for t in layer_types),
        d_model=d_model,
        activation="gelu_tanh",
        embed_scale=d_model**0.5,
        has_qk_norm=True,
        has_post_norms=True,
        **sizes,
    )
