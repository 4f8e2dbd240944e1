"""Host: tensor names of Qwen 3: Llama's tensors, and norms of queries and keys.

In GGUF files, too, the rows of a head are half-split.
"""

from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names import common_rows


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        return common_rows.hf_rules(
            dims, common_rows.HF_NORMS + common_rows.HF_ATTENTION + common_rows.HF_QK_NORMS + common_rows.HF_MLP
        )
    return common_rows.gguf_rules(
        dims, common_rows.GGUF_NORMS + common_rows.gguf_attention() + common_rows.GGUF_QK_NORMS + common_rows.GGUF_MLP
    )
