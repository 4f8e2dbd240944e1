"""Host: the Llama family (also Mistral and SmolLM2): how its vendors spell tensors, and where each goes."""

from checkpoints.maps import rows
from checkpoints.rules import ModelDims, Rule
from checkpoints.transforms import SplitHalves


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return rows.hf_rules(dims, rows.HF_NORMS + rows.HF_ATTENTION + rows.HF_MLP)
    attention = rows.gguf_attention(SplitHalves(dims.head_dim))
    return rows.gguf_rules(dims, rows.GGUF_NORMS + attention + rows.GGUF_MLP)
