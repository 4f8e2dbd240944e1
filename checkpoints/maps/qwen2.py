"""Host: Qwen 2 and 2.5: Llama's tensors and biases of queries, keys and values; in GGUF, too, half-split heads."""

from checkpoints.maps import rows
from checkpoints.rules import ModelDims, Rule


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return rows.hf_rules(dims, rows.HF_NORMS + rows.HF_ATTENTION + rows.HF_BIASES + rows.HF_MLP)
    return rows.gguf_rules(dims, rows.GGUF_NORMS + rows.gguf_attention() + rows.GGUF_BIASES + rows.GGUF_MLP)
