"""Host: tensor names of EAGLE-3 drafts, as the authors' files and those of SpecForge have them.

`d2t` [Vd] (of each entry of the draft's vocabulary the target's token, less the entry's number) and `t2d` [V] (whether
the draft's vocabulary has a token) are no weights.
"""

from checkpoints.mapping import placements as at
from checkpoints.mapping.rules import ModelDims, Rule
from checkpoints.tensor_names.common_names import HF_LAYER, layer_rules

OFFSETS = "d2t"
LAYER = r"midlayer\."


def rules(dims: ModelDims) -> tuple[Rule, ...]:
    """The rules; dims: of the draft's layer."""
    return (
        Rule(r"fc\.weight", "fuse", at.whole, dims),
        Rule(rf"{LAYER}hidden_norm\.weight", "hidden_norm", at.whole, dims),
        *layer_rules(dims, LAYER, HF_LAYER),
        Rule(r"norm\.weight", "final_norm", at.whole, dims),
        Rule(r"lm_head\.weight", "lm_head", at.vocab, dims),
        Rule(rf"{OFFSETS}|t2d", None, at.whole, dims),
    )
