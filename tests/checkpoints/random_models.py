"""Small random models with their vendors' tensor names, and the expected tree by plain numpy formulas."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec as P

from checkpoints.mapping.rules import ModelDims
from tests.checkpoints import gguf_builder as build

# The axis of each leaf that tensor parallelism shards: attention over K, the MLP over F, the vocabulary over its rows.
SPECS = {
    "embed": P("tensor"),
    "qkv": P(None, "tensor"),
    "o": P(None, None, "tensor"),
    "gate_up": P(None, None, "tensor"),
    "down": P(None, None, "tensor"),
}


@dataclass(frozen=True)
class Sizes:
    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 4
    model_dim: int = 32
    mlp_dim: int = 64
    vocab_size: int = 96
    padded_vocab: int = 100
    num_layers: int = 3
    kv_repeat: int = 1

    @property
    def dims(self) -> ModelDims:
        kinds = ["full" if layer % 3 == 1 else "local" for layer in range(self.num_layers)]
        slots = tuple((kind, kinds[:layer].count(kind)) for layer, kind in enumerate(kinds))
        return ModelDims(
            self.num_heads, self.num_kv_heads, self.head_dim, self.vocab_size, slots, kv_repeat=self.kv_repeat
        )

    def with_repeat(self, kv_repeat: int) -> "Sizes":
        return replace(self, kv_repeat=kv_repeat)


def hf_config(sizes: Sizes) -> dict[str, Any]:
    """What config.json of a Llama says of its sizes, but for head_dim."""
    return {
        "model_type": "llama",
        "hidden_size": sizes.model_dim,
        "intermediate_size": sizes.mlp_dim,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "vocab_size": sizes.vocab_size,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }


def hf_tensors(sizes: Sizes, seed: int = 0, *, is_gemma: bool = False) -> dict[str, np.ndarray]:
    """Float32 tensors under their Hugging Face names, tied embedding."""
    rng = np.random.default_rng(seed)
    d, f, h = sizes.model_dim, sizes.mlp_dim, sizes.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocab_size, d), "model.norm.weight": (d,)}
    norms = ["input_layernorm", "post_attention_layernorm"]
    if is_gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for layer in range(sizes.num_layers):
        at = f"model.layers.{layer}."
        shapes |= {f"{at}{norm}.weight": (d,) for norm in norms}
        shapes |= {f"{at}self_attn.{x}_norm.weight": (h,) for x in ("q", "k") if is_gemma}
        shapes[f"{at}self_attn.q_proj.weight"] = (sizes.num_heads * h, d)
        shapes[f"{at}self_attn.k_proj.weight"] = (sizes.num_kv_heads * h, d)
        shapes[f"{at}self_attn.v_proj.weight"] = (sizes.num_kv_heads * h, d)
        shapes[f"{at}self_attn.o_proj.weight"] = (d, sizes.num_heads * h)
        shapes |= {f"{at}mlp.{x}_proj.weight": (f, d) for x in ("gate", "up")}
        shapes[f"{at}mlp.down_proj.weight"] = (d, f)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def tree(sizes: Sizes, tensors: dict[str, np.ndarray], *, is_gemma: bool = False) -> dict:
    """The parameter tree of those tensors, float32."""
    one = np.float32(is_gemma)
    embed = np.zeros((sizes.padded_vocab, sizes.model_dim), np.float32)
    embed[: sizes.vocab_size] = tensors["model.embed_tokens.weight"]
    layers: dict[str, dict[str, list[np.ndarray]]] = {}
    for layer, (kind, _) in enumerate(sizes.dims.layer_slots):
        at = f"model.layers.{layer}."
        leaves = {
            "attn_norm": one + tensors[f"{at}input_layernorm.weight"],
            "qkv": grouped(sizes, *(tensors[f"{at}self_attn.{x}_proj.weight"] for x in "qkv")),
            "o": tensors[f"{at}self_attn.o_proj.weight"],
            "gate_up": np.stack([tensors[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")]),
            "down": tensors[f"{at}mlp.down_proj.weight"],
        }
        if is_gemma:
            leaves |= {
                "post_attn_norm": one + tensors[f"{at}post_attention_layernorm.weight"],
                "mlp_norm": one + tensors[f"{at}pre_feedforward_layernorm.weight"],
                "post_mlp_norm": one + tensors[f"{at}post_feedforward_layernorm.weight"],
                "q_norm": one + tensors[f"{at}self_attn.q_norm.weight"],
                "k_norm": one + tensors[f"{at}self_attn.k_norm.weight"],
            }
        else:
            leaves["mlp_norm"] = tensors[f"{at}post_attention_layernorm.weight"]
        for name, leaf in leaves.items():
            layers.setdefault(kind, {}).setdefault(name, []).append(leaf)
    stacked = {kind: {name: np.stack(parts) for name, parts in leaves.items()} for kind, leaves in layers.items()}
    return {"embed": embed, "final_norm": one + tensors["model.norm.weight"], "layers": stacked}


def grouped(sizes: Sizes, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`[K, (G+2)·H, D]`, built head by head: query head n uses key head n // (N / Kfile)."""
    num_groups, h = sizes.num_kv_heads * sizes.kv_repeat, sizes.head_dim
    groups: list[list[np.ndarray]] = [[] for _ in range(num_groups)]
    for n in range(sizes.num_heads):
        groups[n * num_groups // sizes.num_heads].append(q[n * h : (n + 1) * h])
    for group, parts in enumerate(groups):
        j = group * sizes.num_kv_heads // num_groups
        parts += [k[j * h : (j + 1) * h], v[j * h : (j + 1) * h]]
    return np.stack([np.concatenate(parts) for parts in groups])


def interleaved(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Half-split rows in the order of a Llama GGUF file: in a head, rows i of both halves are adjacent."""
    out = np.empty_like(rows)
    for start in range(0, len(rows), head_dim):
        for i in range(head_dim // 2):
            out[start + 2 * i] = rows[start + i]
            out[start + 2 * i + 1] = rows[start + head_dim // 2 + i]
    return out


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
LLAMA_NORMS = {"post_attention_layernorm": "ffn_norm"}
GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_tensors(
    sizes: Sizes, tensors: dict[str, np.ndarray], kind: str = "F32", *, is_gemma: bool = False
) -> list[build.Tensor]:
    """The model as written by a GGUF converter: other names, 1 + w in Gemma's norms, Llama's q and k interleaved."""
    names = GGUF_NAMES | (GEMMA_NORMS if is_gemma else LLAMA_NORMS)
    written = []
    for name, tensor in tensors.items():
        if name.startswith("model.layers."):
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            short = f"blk.{layer}.{names[part]}.weight"
        else:
            short = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
        if not is_gemma and ("attn_q." in short or "attn_k." in short):
            tensor = interleaved(tensor, sizes.head_dim)
        if is_gemma and tensor.ndim == 1:
            tensor = tensor + np.float32(1)
        written.append(build.pack(short, tensor, kind if tensor.ndim > 1 else "F32"))
    return written
