"""Host: tensor names of Qwen 2 and 2.5: Llama's tensors, and biases of queries, keys and values.

In GGUF files, too, the rows of a head are half-split.
"""

from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names.common_names import GGUF_BIASES, GGUF_LAYER, HF_BIASES, HF_LAYER, family_rules


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return family_rules(spelling, dims, HF_LAYER + HF_BIASES, GGUF_LAYER + GGUF_BIASES)
