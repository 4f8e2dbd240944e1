"""Host: the fields shared by Gemma 2 and 3: tanh-approximated GELU, scaled embeddings, norms before and after each
sublayer, a query scale of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxserve.models.config import common_sizes as common
from jaxserve.models.config.config_keys import ConfigKeys
from jaxserve.models.config.layer_types import by_type, hf_layer_types
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.config.rope import Rope

ACTIVATION = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class Form:
    """A model but for its rotary embedding and windows. query_scalar: its root divides the scores."""

    sizes: common.Sizes
    query_scalar: float
    attention_softcap: float | None = None
    final_softcap: float | None = None

    def model(
        self, family: str, layer_types: Sequence[str], local: Rope, glob: Rope, window: int, *, has_qk_norm: bool
    ) -> ModelConfig:
        """The model with these types of its layers. local, glob: rotary embedding with and without a window."""
        own_scale = None if self.query_scalar == self.sizes.head_dim else self.query_scalar**-0.5
        whole = self.sizes.whole_kind(
            glob,
            activation="gelu_tanh",
            has_post_norms=True,
            query_scale=own_scale,
            softcap=self.attention_softcap,
            has_qk_norm=has_qk_norm,
        )
        layers = by_type(layer_types, whole, window, local)
        scale = self.sizes.d_model**0.5
        return self.sizes.model(family, layers, embed_scale=scale, final_softcap=self.final_softcap)


def hf_form(keys: ConfigKeys) -> Form:
    """From config.json."""
    keys.require("attention_bias", (False,), False)
    keys.require("hidden_activation", (ACTIVATION,), ACTIVATION)
    # Gemma 2's first files have "gelu_pytorch_tanh" here too; transformers reads only hidden_activation.
    keys.require("hidden_act", (ACTIVATION,), ACTIVATION)
    keys.require("use_bidirectional_attention", (False,), False)
    return Form(
        common.hf_sizes(keys),
        keys.take_float("query_pre_attn_scalar", 256.0),
        keys.take_float("attn_logit_softcapping", None),
        keys.take_float("final_logit_softcapping", None),
    )


def gguf_form(keys: ConfigKeys, metadata: Any, is_tied: bool, largest: int) -> Form:
    """From a GGUF header, without soft caps.

    The header omits the query scale: it is head_dim ** -0.5, but (d_model / num_heads) ** -0.5 in the size of `largest`
    layers.
    """
    sizes = common.gguf_sizes(keys, metadata, is_tied)
    is_largest = sizes.num_layers == largest
    return Form(sizes, sizes.d_model // sizes.num_heads if is_largest else sizes.head_dim)


def hf_config(config: ModelConfig, architecture: str, model_type: str) -> dict[str, Any]:
    """The keys of config.json that `hf_form` reads, and the layer types."""
    scale, softcap = config.common(lambda kind: (kind.attention.scale, kind.attention.softcap))
    scalar = round(scale**-2)
    return {
        **common.hf_config(config, architecture, model_type),
        **hf_layer_types(config),
        "hidden_activation": ACTIVATION,
        "query_pre_attn_scalar": scalar if scalar**-0.5 == scale else scale**-2,
        "attn_logit_softcapping": softcap,
        "final_logit_softcapping": config.final_softcap,
    }
