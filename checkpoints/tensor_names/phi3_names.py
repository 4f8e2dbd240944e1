"""Host: tensor names of Phi-3: Llama's layers with queries, keys and values in one tensor, gate and up in another."""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names.common_names import GGUF_NORMS, HF_NORMS, LayerTensor, family_rules

HF = (
    *HF_NORMS,
    LayerTensor("self_attn.qkv_proj.weight", "qkv", at.query_key_value),
    LayerTensor("self_attn.o_proj.weight", "o", at.layer),
    LayerTensor("mlp.gate_up_proj.weight", "gate_up", at.gate_up),
    LayerTensor("mlp.down_proj.weight", "down", at.layer),
)
GGUF = (
    *GGUF_NORMS,
    LayerTensor("attn_qkv.weight", "qkv", at.query_key_value),
    LayerTensor("attn_output.weight", "o", at.layer),
    LayerTensor("ffn_up.weight", "gate_up", at.gate_up),
    LayerTensor("ffn_down.weight", "down", at.layer),
)


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return family_rules(spelling, dims, HF, GGUF)
