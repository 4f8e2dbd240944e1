"""Host: tensor names that most families share, in Hugging Face and in GGUF files, and the leaf that each tensor fills.

A `Row` is one tensor of a layer. `hf_rules` and `gguf_rules` add the tensors outside the layers.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import LAYER, ModelDims, Placement, Rule
from checkpoints.mapping.transforms import Transform, keep


class Row(NamedTuple):
    """A tensor of every layer: its name within the layer, and its leaf under `layers/<type>`."""

    tensor: str
    leaf: str
    place: Placement
    transform: Transform = keep


HF_ATTENTION = (
    Row("self_attn.q_proj.weight", "qkv", at.query),
    Row("self_attn.k_proj.weight", "qkv", at.key),
    Row("self_attn.v_proj.weight", "qkv", at.value),
    Row("self_attn.o_proj.weight", "o", at.layer),
)
HF_BIASES = (
    Row("self_attn.q_proj.bias", "qkv_bias", at.query),
    Row("self_attn.k_proj.bias", "qkv_bias", at.key),
    Row("self_attn.v_proj.bias", "qkv_bias", at.value),
)
HF_MLP = (
    Row("mlp.gate_proj.weight", "gate_up", at.gate),
    Row("mlp.up_proj.weight", "gate_up", at.up),
    Row("mlp.down_proj.weight", "down", at.layer),
)
HF_NORMS = (
    Row("input_layernorm.weight", "attn_norm", at.layer),
    Row("post_attention_layernorm.weight", "mlp_norm", at.layer),
)
HF_QK_NORMS = (
    Row("self_attn.q_norm.weight", "q_norm", at.layer),
    Row("self_attn.k_norm.weight", "k_norm", at.layer),
)

GGUF_BIASES = (
    Row("attn_q.bias", "qkv_bias", at.query),
    Row("attn_k.bias", "qkv_bias", at.key),
    Row("attn_v.bias", "qkv_bias", at.value),
)
GGUF_MLP = (
    Row("ffn_gate.weight", "gate_up", at.gate),
    Row("ffn_up.weight", "gate_up", at.up),
    Row("ffn_down.weight", "down", at.layer),
)
GGUF_NORMS = (
    Row("attn_norm.weight", "attn_norm", at.layer),
    Row("ffn_norm.weight", "mlp_norm", at.layer),
)
GGUF_QK_NORMS = (
    Row("attn_q_norm.weight", "q_norm", at.layer),
    Row("attn_k_norm.weight", "k_norm", at.layer),
)


def gguf_attention(rotated: Transform = keep) -> tuple[Row, ...]:
    """rotated: the transform of queries and keys."""
    return (
        Row("attn_q.weight", "qkv", at.query, rotated),
        Row("attn_k.weight", "qkv", at.key, rotated),
        Row("attn_v.weight", "qkv", at.value),
        Row("attn_output.weight", "o", at.layer),
    )


def hf_rules(
    dims: ModelDims, rows: Iterable[Row], *, norm: Transform = keep, model: str = r"model\.", head: str = ""
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
        *_layer_rules(dims, layer, rows),
        Rule(rf"{layer}self_attn\.rotary_emb\.inv_freq", None, at.layer, dims),
    )


def gguf_rules(dims: ModelDims, rows: Iterable[Row]) -> tuple[Rule, ...]:
    """Rules for a GGUF file; tables of RoPE factors are read with the configuration and ignored here."""
    return (
        Rule(r"token_embd\.weight", "embed", at.vocab, dims),
        Rule(r"output_norm\.weight", "final_norm", at.whole, dims),
        Rule(r"output\.weight", None if dims.is_tied else "lm_head", at.vocab, dims),
        *_layer_rules(dims, rf"blk\.{LAYER}\.", rows),
        Rule(r"rope_(?:freqs|factors_long|factors_short)\.weight", None, at.whole, dims),
    )


def _layer_rules(dims: ModelDims, layer: str, rows: Iterable[Row]) -> Iterable[Rule]:
    for row in rows:
        yield Rule(layer + re.escape(row.tensor), f"layers/{{layer_type}}/{row.leaf}", row.place, dims, row.transform)
