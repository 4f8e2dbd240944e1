"""Host: tensor names that most families share, in Hugging Face and in GGUF files, and the leaf that each tensor fills.

A `LayerTensor` is one tensor of every layer. `hf_rules` and `gguf_rules` add the tensors outside the layers.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import LAYER, ModelDims, Placement, Rule
from checkpoints.mapping.transforms import Transform, keep


class LayerTensor(NamedTuple):
    """A tensor of every layer: its name within the layer, and its leaf under `layers/<stack>`."""

    name: str
    leaf: str
    place: Placement
    transform: Transform = keep


HF_ATTENTION = (
    LayerTensor("self_attn.q_proj.weight", "qkv", at.query),
    LayerTensor("self_attn.k_proj.weight", "qkv", at.key),
    LayerTensor("self_attn.v_proj.weight", "qkv", at.value),
    LayerTensor("self_attn.o_proj.weight", "o", at.layer),
)
HF_BIASES = (
    LayerTensor("self_attn.q_proj.bias", "qkv_bias", at.query),
    LayerTensor("self_attn.k_proj.bias", "qkv_bias", at.key),
    LayerTensor("self_attn.v_proj.bias", "qkv_bias", at.value),
)
HF_MLP = (
    LayerTensor("mlp.gate_proj.weight", "gate_up", at.gate),
    LayerTensor("mlp.up_proj.weight", "gate_up", at.up),
    LayerTensor("mlp.down_proj.weight", "down", at.layer),
)
HF_NORMS = (
    LayerTensor("input_layernorm.weight", "attn_norm", at.layer),
    LayerTensor("post_attention_layernorm.weight", "mlp_norm", at.layer),
)
HF_QK_NORMS = (
    LayerTensor("self_attn.q_norm.weight", "q_norm", at.layer),
    LayerTensor("self_attn.k_norm.weight", "k_norm", at.layer),
)

GGUF_BIASES = (
    LayerTensor("attn_q.bias", "qkv_bias", at.query),
    LayerTensor("attn_k.bias", "qkv_bias", at.key),
    LayerTensor("attn_v.bias", "qkv_bias", at.value),
)
GGUF_MLP = (
    LayerTensor("ffn_gate.weight", "gate_up", at.gate),
    LayerTensor("ffn_up.weight", "gate_up", at.up),
    LayerTensor("ffn_down.weight", "down", at.layer),
)
GGUF_NORMS = (
    LayerTensor("attn_norm.weight", "attn_norm", at.layer),
    LayerTensor("ffn_norm.weight", "mlp_norm", at.layer),
)
GGUF_QK_NORMS = (
    LayerTensor("attn_q_norm.weight", "q_norm", at.layer),
    LayerTensor("attn_k_norm.weight", "k_norm", at.layer),
)


def gguf_attention(rotated: Transform = keep) -> tuple[LayerTensor, ...]:
    """rotated: the transform of queries and keys."""
    return (
        LayerTensor("attn_q.weight", "qkv", at.query, rotated),
        LayerTensor("attn_k.weight", "qkv", at.key, rotated),
        LayerTensor("attn_v.weight", "qkv", at.value),
        LayerTensor("attn_output.weight", "o", at.layer),
    )


HF_LAYER = HF_NORMS + HF_ATTENTION + HF_MLP
GGUF_LAYER = GGUF_NORMS + gguf_attention() + GGUF_MLP


def family_rules(
    spelling: str, dims: ModelDims, hf: Iterable[LayerTensor], gguf: Iterable[LayerTensor]
) -> tuple[Rule, ...]:
    """The rules of a family for `spelling` "hf" or "gguf", from the tensors of its layers in either spelling."""
    return hf_rules(dims, hf) if spelling == "hf" else gguf_rules(dims, gguf)


def hf_rules(
    dims: ModelDims, tensors: Iterable[LayerTensor], *, norm: Transform = keep, model: str = r"model\.", head: str = ""
) -> tuple[Rule, ...]:
    """Rules for Hugging Face files.

    norm: the transform of the final norm. model, head: regular expressions for the prefixes of the decoder's and of the
    head's names.
    """
    layer = rf"{model}layers\.{LAYER}\."
    return (
        Rule(rf"{model}embed_tokens\.weight", "embed", at.vocab, dims),
        Rule(rf"{model}norm\.weight", "final_norm", at.whole, dims, norm),
        Rule(rf"{head}lm_head\.weight", None if dims.is_tied else "lm_head", at.vocab, dims),
        *layer_rules(dims, layer, tensors),
        Rule(rf"{layer}self_attn\.rotary_emb\.inv_freq", None, at.layer, dims),
    )


def gguf_rules(dims: ModelDims, tensors: Iterable[LayerTensor]) -> tuple[Rule, ...]:
    """Rules for a GGUF file; tables of RoPE factors are read with the configuration and ignored here."""
    return (
        Rule(r"token_embd\.weight", "embed", at.vocab, dims),
        Rule(r"output_norm\.weight", "final_norm", at.whole, dims),
        Rule(r"output\.weight", None if dims.is_tied else "lm_head", at.vocab, dims),
        *layer_rules(dims, rf"blk\.{LAYER}\.", tensors),
        Rule(r"rope_(?:freqs|factors_long|factors_short)\.weight", None, at.whole, dims),
    )


def layer_rules(dims: ModelDims, layer: str, tensors: Iterable[LayerTensor]) -> Iterable[Rule]:
    for name, leaf, place, transform in tensors:
        yield Rule(layer + re.escape(name), f"layers/{{stack}}/{leaf}", place, dims, transform)
