"""Host: tensor names of the Llama family (also Mistral and SmolLM2), by the rows of `common_rows`."""

from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.mapping.transforms import SplitHalves
from checkpoints.tensor_names import common_rows


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return common_rows.hf_rules(dims, common_rows.HF_NORMS + common_rows.HF_ATTENTION + common_rows.HF_MLP)
    attention = common_rows.gguf_attention(SplitHalves(dims.head_dim))
    return common_rows.gguf_rules(dims, common_rows.GGUF_NORMS + attention + common_rows.GGUF_MLP)
