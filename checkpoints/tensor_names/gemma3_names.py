"""Host: tensor names of Gemma 3's text model: Gemma 2's tensors, and norms of queries and keys."""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.mapping.transforms import add_one
from checkpoints.tensor_names import common_rows, gemma2_names

# In checkpoints with a vision tower the text model is under language_model, before or after "model" depending on age.
MODEL, HEAD = r"(?:language_model\.)?model\.(?:language_model\.)?", r"(?:language_model\.)?"


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        qk_norms = tuple(row._replace(transform=add_one) for row in common_rows.HF_QK_NORMS)
        layer = gemma2_names.HF_NORMS + qk_norms + common_rows.HF_ATTENTION + common_rows.HF_MLP
        return (
            *common_rows.hf_rules(dims, layer, norm=add_one, model=MODEL, head=HEAD),
            Rule(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*", None, at.whole, dims),
        )
    return common_rows.gguf_rules(
        dims, gemma2_names.GGUF_NORMS + common_rows.GGUF_QK_NORMS + common_rows.gguf_attention() + common_rows.GGUF_MLP
    )
