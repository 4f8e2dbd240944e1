"""Host: Gemma 2: Llama's tensors and norms after each sublayer.

Norms are stored as w in Hugging Face files and multiply by 1 + w; GGUF files already hold 1 + w.
"""

from checkpoints import placements as at
from checkpoints.maps import rows
from checkpoints.maps.rows import Row
from checkpoints.rules import ModelDims, Rule
from checkpoints.transforms import add_one

HF_NORMS = (
    Row("input_layernorm.weight", "attn_norm", at.layer, add_one),
    Row("post_attention_layernorm.weight", "post_attn_norm", at.layer, add_one),
    Row("pre_feedforward_layernorm.weight", "mlp_norm", at.layer, add_one),
    Row("post_feedforward_layernorm.weight", "post_mlp_norm", at.layer, add_one),
)
GGUF_NORMS = (
    *rows.GGUF_NORMS,
    Row("post_attention_norm.weight", "post_attn_norm", at.layer),
    Row("post_ffw_norm.weight", "post_mlp_norm", at.layer),
)


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return rows.hf_rules(dims, HF_NORMS + rows.HF_ATTENTION + rows.HF_MLP, norm=add_one)
    return rows.gguf_rules(dims, GGUF_NORMS + rows.gguf_attention() + rows.GGUF_MLP)
