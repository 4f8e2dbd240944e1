"""Host: the text half of Gemma 3: Gemma 2's tensors and norms of queries and keys."""

from checkpoints import placements as at
from checkpoints.maps import gemma2, rows
from checkpoints.rules import ModelDims, Rule
from checkpoints.transforms import add_one

# Checkpoints with a vision tower keep the text model under language_model, before or after "model" by their age.
MODEL, HEAD = r"(?:language_model\.)?model\.(?:language_model\.)?", r"(?:language_model\.)?"


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    if spelling == "hf":
        qk_norms = tuple(row._replace(transform=add_one) for row in rows.HF_QK_NORMS)
        layer = gemma2.HF_NORMS + qk_norms + rows.HF_ATTENTION + rows.HF_MLP
        return (
            *rows.hf_rules(dims, layer, norm=add_one, model=MODEL, head=HEAD),
            Rule(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*", None, at.whole, dims),
        )
    return rows.gguf_rules(dims, gemma2.GGUF_NORMS + rows.GGUF_QK_NORMS + rows.gguf_attention() + rows.GGUF_MLP)
