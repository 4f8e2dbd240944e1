"""Host: Qwen 3: Llama's tensors and norms of queries and keys; in GGUF, too, half-split heads."""

from checkpoints.maps import rows
from checkpoints.rules import ModelDims, Rule


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return rows.hf_rules(dims, rows.HF_NORMS + rows.HF_ATTENTION + rows.HF_QK_NORMS + rows.HF_MLP)
    return rows.gguf_rules(dims, rows.GGUF_NORMS + rows.gguf_attention() + rows.GGUF_QK_NORMS + rows.GGUF_MLP)
