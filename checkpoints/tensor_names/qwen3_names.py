"""Host: tensor names of Qwen 3: Llama's tensors, and norms of queries and keys.

In GGUF files, too, the rows of a head are half-split.
"""

from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names.common_names import GGUF_LAYER, GGUF_QK_NORMS, HF_LAYER, HF_QK_NORMS, family_rules


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return family_rules(spelling, dims, HF_LAYER + HF_QK_NORMS, GGUF_LAYER + GGUF_QK_NORMS)
