"""Device: attention with grouped queries (GQA, arXiv 2305.13245): its parameters and its projections.

The op between the projections, which reads and writes the KV pool, is called in `attention.py`.
"""

import jax
from jaxtyping import Array, Float

from jaxserve.core.hardware.mesh import AnyMesh, num_shards
from jaxserve.models.config.layer_kind import GroupedAttention
from jaxserve.models.layer_adapters import NOTHING, Added
from jaxserve.models.linear import Linear, Weights
from jaxserve.models.param_spec import LayerSpecs
from jaxserve.models.rms_norm import named_norm
from jaxserve.models.rotary import rotate


def declare(attention: GroupedAttention, d_model: int, num_kv_heads: int, of_layers: LayerSpecs) -> dict[str, object]:
    """qkv [K, (G+2)*H, D]  rows of KV head k: its G query heads, its key, its value     qkv_bias [K, (G+2)*H]
    q_norm, k_norm [H]     o [D, N*H]

    num_kv_heads: K, repeated ones included.
    """
    n, k, h = attention.num_heads, num_kv_heads, attention.head_dim
    rows = (n // k * h, h, h)
    leaves: dict[str, object] = {
        "qkv": of_layers.matrix("qkv", k, sum(rows), d_model, axes=("kv_heads", None, None), parts=rows),
        "o": of_layers.matrix("o", d_model, n * h, axes=(None, "heads")),
    }
    if attention.has_bias:
        leaves["qkv_bias"] = of_layers.bias(k, (n // k + 2) * h, axes=("kv_heads", None))
    if attention.has_qk_norm:
        leaves |= {"q_norm": of_layers.norm(h), "k_norm": of_layers.norm(h)}
    return leaves


def project(
    attention: GroupedAttention,
    eps: float,
    w: Weights,
    x: Float[Array, "T D"],
    rope: tuple[jax.Array, jax.Array],
    added: Added = NOTHING,
) -> tuple[Float[Array, "T N H"], Float[Array, "T K H"], Float[Array, "T K H"]]:
    """Queries and keys with rotary embedding, and values. eps: of norms. rope: cosines and sines.
    added: by adapters."""
    num_tokens, h = x.shape[0], attention.head_dim
    with jax.named_scope("qkv"):
        qkv = Linear(w["qkv"], w.get("qkv_bias"), adapter=added.get("qkv"), divided_axis=0)(x)  # [T, K, (G+2)*H]
    split = qkv.shape[-1] - 2 * h
    q = qkv[..., :split].reshape(num_tokens, attention.num_heads, h)
    k, v = qkv[..., split : split + h], qkv[..., split + h :]
    q, k = named_norm(w, "q_norm", q, eps), named_norm(w, "k_norm", k, eps)
    return rotate(q, *rope), rotate(k, *rope), v


def output(mesh: AnyMesh, w: Weights, o: Float[Array, "T N H"], added: Added = NOTHING) -> Float[Array, "T D"]:
    """The heads' outputs projected back."""
    with jax.named_scope("o"):
        is_divided = num_shards(mesh, "heads") > 1
        project = Linear(w["o"], adapter=added.get("o"), divided_axis=-1 if is_divided else None)
        return project(o.reshape(o.shape[0], -1))
