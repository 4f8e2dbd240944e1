"""Host: the Llama family (also SmolLM2): how its vendors spell tensors, and where each goes."""

from checkpoints import placements as at
from checkpoints.rules import LAYER, ModelDims, Rule
from checkpoints.transforms import SplitHalves


def rules(spelling: str, dims: ModelDims) -> tuple[Rule, ...]:
    """The rules for `spelling` "hf" or "gguf"."""
    return {"hf": _hf, "gguf": _gguf}[spelling](dims)


def _hf(dims: ModelDims) -> tuple[Rule, ...]:
    layer = rf"model\.layers\.{LAYER}\."
    return (
        Rule(r"model\.embed_tokens\.weight", "embed", at.vocab, dims),
        Rule(r"model\.norm\.weight", "final_norm", at.whole, dims),
        Rule(r"lm_head\.weight", None if dims.is_tied else "lm_head", at.vocab, dims),
        Rule(rf"{layer}input_layernorm\.weight", "layers/{kind}/attn_norm", at.layer, dims),
        Rule(rf"{layer}post_attention_layernorm\.weight", "layers/{kind}/mlp_norm", at.layer, dims),
        Rule(rf"{layer}self_attn\.q_proj\.weight", "layers/{kind}/qkv", at.query, dims),
        Rule(rf"{layer}self_attn\.k_proj\.weight", "layers/{kind}/qkv", at.key, dims),
        Rule(rf"{layer}self_attn\.v_proj\.weight", "layers/{kind}/qkv", at.value, dims),
        Rule(rf"{layer}self_attn\.o_proj\.weight", "layers/{kind}/o", at.layer, dims),
        Rule(rf"{layer}mlp\.gate_proj\.weight", "layers/{kind}/gate_up", at.gate, dims),
        Rule(rf"{layer}mlp\.up_proj\.weight", "layers/{kind}/gate_up", at.up, dims),
        Rule(rf"{layer}mlp\.down_proj\.weight", "layers/{kind}/down", at.layer, dims),
        Rule(rf"{layer}self_attn\.rotary_emb\.inv_freq", None, at.layer, dims),
    )


def _gguf(dims: ModelDims) -> tuple[Rule, ...]:
    layer = rf"blk\.{LAYER}\."
    halves = SplitHalves(dims.head_dim)
    return (
        Rule(r"token_embd\.weight", "embed", at.vocab, dims),
        Rule(r"output_norm\.weight", "final_norm", at.whole, dims),
        Rule(r"output\.weight", None if dims.is_tied else "lm_head", at.vocab, dims),
        Rule(rf"{layer}attn_norm\.weight", "layers/{kind}/attn_norm", at.layer, dims),
        Rule(rf"{layer}ffn_norm\.weight", "layers/{kind}/mlp_norm", at.layer, dims),
        Rule(rf"{layer}attn_q\.weight", "layers/{kind}/qkv", at.query, dims, halves),
        Rule(rf"{layer}attn_k\.weight", "layers/{kind}/qkv", at.key, dims, halves),
        Rule(rf"{layer}attn_v\.weight", "layers/{kind}/qkv", at.value, dims),
        Rule(rf"{layer}attn_output\.weight", "layers/{kind}/o", at.layer, dims),
        Rule(rf"{layer}ffn_gate\.weight", "layers/{kind}/gate_up", at.gate, dims),
        Rule(rf"{layer}ffn_up\.weight", "layers/{kind}/gate_up", at.up, dims),
        Rule(rf"{layer}ffn_down\.weight", "layers/{kind}/down", at.layer, dims),
        Rule(r"rope_freqs\.weight", None, at.whole, dims),
    )
