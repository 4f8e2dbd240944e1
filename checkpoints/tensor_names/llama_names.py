"""Host: tensor names of the Llama family (also Mistral and SmolLM2): those of `common_names`."""

from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.mapping.transforms import SplitHalves
from checkpoints.tensor_names.common_names import GGUF_MLP, GGUF_NORMS, HF_LAYER, family_rules, gguf_attention


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    gguf = GGUF_NORMS + gguf_attention(SplitHalves(dims.head_dim)) + GGUF_MLP
    return family_rules(spelling, dims, HF_LAYER, gguf)
