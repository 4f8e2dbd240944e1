"""Host: tensor names of Phi-3: Llama's layers with queries, keys and values in one tensor, gate and up in another."""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names import common_rows
from checkpoints.tensor_names.common_rows import Row

HF = (
    *common_rows.HF_NORMS,
    Row("self_attn.qkv_proj.weight", "qkv", at.query_key_value),
    Row("self_attn.o_proj.weight", "o", at.layer),
    Row("mlp.gate_up_proj.weight", "gate_up", at.gate_up),
    Row("mlp.down_proj.weight", "down", at.layer),
)
GGUF = (
    *common_rows.GGUF_NORMS,
    Row("attn_qkv.weight", "qkv", at.query_key_value),
    Row("attn_output.weight", "o", at.layer),
    Row("ffn_up.weight", "gate_up", at.gate_up),
    Row("ffn_down.weight", "down", at.layer),
)


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return common_rows.hf_rules(dims, HF) if spelling == "hf" else common_rows.gguf_rules(dims, GGUF)
