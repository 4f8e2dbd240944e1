"""Host: the fields shared by Gemma 2 and 3: tanh-approximated GELU, scaled embeddings, norms before and after each
sublayer, a query scale of its own."""

from typing import Any

from jaxserve.models.config import common_sizes as common
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import hf_layer_types
from jaxserve.models.config.model_config import ModelConfig

ACTIVATION = "gelu_pytorch_tanh"


def hf_fields(keys: ConfigKeys) -> dict[str, Any]:
    """Fields of `ModelConfig` from config.json: sizes and Gemma's own fields."""
    keys.require("attention_bias", (False,), False)
    keys.require("hidden_activation", (ACTIVATION,), ACTIVATION)
    # Gemma 2's first files have "gelu_pytorch_tanh" here too; transformers reads only hidden_activation.
    keys.require("hidden_act", (ACTIVATION,), ACTIVATION)
    keys.require("use_bidirectional_attention", (False,), False)
    sizes = common.hf_sizes(keys)
    return {
        **_own(sizes, keys.take_float("query_pre_attn_scalar", 256.0)),
        "attention_softcap": keys.take_float("attn_logit_softcapping", None),
        "final_softcap": keys.take_float("final_logit_softcapping", None),
    }


def gguf_fields(keys: ConfigKeys, metadata: Any, is_tied: bool, largest: int) -> dict[str, Any]:
    """Fields of `ModelConfig` from a GGUF header.

    The header omits the query scale: it is head_dim ** -0.5, but (d_model / num_heads) ** -0.5 in the size of `largest`
    layers.
    """
    sizes = common.gguf_sizes(keys, metadata, is_tied)
    is_largest = sizes["num_layers"] == largest
    return _own(sizes, sizes["d_model"] // sizes["num_heads"] if is_largest else sizes["head_dim"])


def _own(sizes: dict[str, Any], query_scalar: float) -> dict[str, Any]:
    return {
        **sizes,
        "activation": "gelu_tanh",
        "embed_scale": sizes["d_model"] ** 0.5,
        "has_post_norms": True,
        "attention_scale": None if query_scalar == sizes["head_dim"] else query_scalar**-0.5,
    }


def hf_config(config: ModelConfig, architecture: str, model_type: str) -> dict[str, Any]:
    """The keys of config.json that `hf_fields` reads, and the layer types."""
    scalar = round(config.scale**-2)
    return {
        **common.hf_config(config, architecture, model_type),
        **hf_layer_types(config),
        "hidden_activation": ACTIVATION,
        "query_pre_attn_scalar": scalar if scalar**-0.5 == config.scale else config.scale**-2,
        "attn_logit_softcapping": config.attention_softcap,
        "final_logit_softcapping": config.final_softcap,
    }
