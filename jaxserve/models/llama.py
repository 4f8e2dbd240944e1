"""Host: Llama 2 and 3.x, and what shares their form (SmolLM2 among them)."""

from collections.abc import Mapping
from typing import Any

from jaxserve.models.config import LayerKind, ModelConfig, Rope
from jaxserve.models.keys import Keys, token_ids
from jaxserve.models.rope_config import read_rope

FAMILY = "llama"


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """From config.json with model_type 'llama'."""
    keys = Keys(config, "config.json")
    d_model, num_heads = keys.take_int("hidden_size"), keys.take_int("num_attention_heads")
    head_dim = keys.take_int("head_dim", d_model // num_heads)
    num_layers = keys.take_int("num_hidden_layers")
    keys.require("attention_bias", (False,), False)
    keys.require("mlp_bias", (False,), False)
    keys.require("hidden_act", ("silu",), "silu")
    keys.require("rope_interleaved", (False,), False)
    model = ModelConfig(
        family=FAMILY,
        vocab_size=keys.take_int("vocab_size"),
        num_layers=num_layers,
        d_model=d_model,
        d_mlp=keys.take_int("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=keys.take_int("num_key_value_heads", num_heads),
        head_dim=head_dim,
        max_position=keys.take_int("max_position_embeddings", 2048),
        kinds=(LayerKind("global", read_rope(keys, head_dim)),),
        layer_kinds=(0,) * num_layers,
        norm_eps=keys.take("rms_norm_eps", 1e-6),
        is_tied=keys.take("tie_word_embeddings", False),
        dtype=config.get("dtype") or config.get("torch_dtype"),
        bos_id=config.get("bos_token_id"),
        eos_ids=token_ids(config.get("eos_token_id")),
    )
    keys.finish(inert=("is_llama_config",))
    return model


def from_gguf(metadata: Mapping[str, Any], is_tied: bool, rope_factors: tuple[float, ...] | None) -> ModelConfig:
    """From GGUF metadata with general.architecture 'llama'; Llama 3's rope scaling comes as a tensor of factors."""
    own = {k.removeprefix("llama."): v for k, v in metadata.items() if k.startswith("llama.")}
    keys = Keys(own, "the GGUF header (llama.*)")
    d_model, num_heads = keys.take_int("embedding_length"), keys.take_int("attention.head_count")
    head_dim = keys.take_int("attention.key_length", d_model // num_heads)
    num_layers = keys.take_int("block_count")
    keys.require("attention.value_length", (head_dim,), head_dim)
    keys.require("rope.dimension_count", (head_dim,), head_dim)
    keys.require("rope.scaling.type", ("none",), "none")
    keys.require("expert_count", (0,), 0)
    model = ModelConfig(
        family=FAMILY,
        vocab_size=keys.take_int("vocab_size", len(metadata.get("tokenizer.ggml.tokens", ()))),
        num_layers=num_layers,
        d_model=d_model,
        d_mlp=keys.take_int("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.take_int("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_position=keys.take_int("context_length"),
        kinds=(LayerKind("global", Rope(keys.take("rope.freq_base", 10000.0), rope_factors)),),
        layer_kinds=(0,) * num_layers,
        norm_eps=keys.take("attention.layer_norm_rms_epsilon"),
        is_tied=is_tied,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=token_ids(metadata.get("tokenizer.ggml.eos_token_id")),
    )
    keys.finish()
    return model
