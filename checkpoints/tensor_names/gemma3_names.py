"""Host: tensor names of Gemma 3's text model: Gemma 2's tensors, and norms of queries and keys."""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.mapping.transforms import add_one
from checkpoints.tensor_names import common_names, gemma2_names

# In checkpoints with a vision tower the text model is under language_model, before or after "model" depending on age.
MODEL, HEAD = r"(?:language_model\.)?model\.(?:language_model\.)?", r"(?:language_model\.)?"


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        qk_norms = tuple(tensor._replace(transform=add_one) for tensor in common_names.HF_QK_NORMS)
        layer = gemma2_names.HF_NORMS + qk_norms + common_names.HF_ATTENTION + common_names.HF_MLP
        return (
            *common_names.hf_rules(dims, layer, norm=add_one, model=MODEL, head=HEAD),
            Rule(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*", None, at.whole, dims),
        )
    return common_names.gguf_rules(
        dims,
        gemma2_names.GGUF_NORMS + common_names.GGUF_QK_NORMS + common_names.gguf_attention() + common_names.GGUF_MLP,
    )
