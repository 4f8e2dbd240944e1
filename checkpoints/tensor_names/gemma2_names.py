"""Host: tensor names of Gemma 2: Llama's tensors, and norms after each sublayer.

Norms multiply by 1 + w. Hugging Face files store w, GGUF files 1 + w.
"""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.mapping.transforms import add_one
from checkpoints.tensor_names import common_names
from checkpoints.tensor_names.common_names import LayerTensor

HF_NORMS = (
    LayerTensor("input_layernorm.weight", "attn_norm", at.layer, add_one),
    LayerTensor("post_attention_layernorm.weight", "post_attn_norm", at.layer, add_one),
    LayerTensor("pre_feedforward_layernorm.weight", "mlp_norm", at.layer, add_one),
    LayerTensor("post_feedforward_layernorm.weight", "post_mlp_norm", at.layer, add_one),
)
GGUF_NORMS = (
    *common_names.GGUF_NORMS,
    LayerTensor("post_attention_norm.weight", "post_attn_norm", at.layer),
    LayerTensor("post_ffw_norm.weight", "post_mlp_norm", at.layer),
)


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return common_names.hf_rules(dims, HF_NORMS + common_names.HF_ATTENTION + common_names.HF_MLP, norm=add_one)
    return common_names.gguf_rules(dims, GGUF_NORMS + common_names.gguf_attention() + common_names.GGUF_MLP)
