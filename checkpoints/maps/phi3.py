"""Host: Phi-3: Llama's layers with queries, keys and values in one tensor, gate and up in another."""

from checkpoints import placements as at
from checkpoints.maps import rows
from checkpoints.maps.rows import Row
from checkpoints.rules import ModelDims, Rule

HF = (
    *rows.HF_NORMS,
    Row("self_attn.qkv_proj.weight", "qkv", at.query_key_value),
    Row("self_attn.o_proj.weight", "o", at.layer),
    Row("mlp.gate_up_proj.weight", "gate_up", at.gate_up),
    Row("mlp.down_proj.weight", "down", at.layer),
)
GGUF = (
    *rows.GGUF_NORMS,
    Row("attn_qkv.weight", "qkv", at.query_key_value),
    Row("attn_output.weight", "o", at.layer),
    Row("ffn_up.weight", "gate_up", at.gate_up),
    Row("ffn_down.weight", "down", at.layer),
)


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return rows.hf_rules(dims, HF) if spelling == "hf" else rows.gguf_rules(dims, GGUF)
