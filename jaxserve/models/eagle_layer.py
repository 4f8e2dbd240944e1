"""Device: an EAGLE-3 draft (Li et al., arXiv 2503.01840): one layer that reads the target's hidden states.

    the target's states before layers 2, L/2 and L - 3 ─ fuse ─ the feature of a token, [D]

    token p             ─ embedding ─ norm ─┐
    feature of token p-1 ─┬────────── norm ─┴─ [2D] ─ attention ─ + ─ MLP ─ + ─┬─ norm ─ head ─ token p + 1
                          └─────────────────────────────────────┘             └─ for a draft: the feature of token p

Where there is no feature, at position 0 and after a cached prefix, it is zero (in the authors' code position 0 is left
out). Keys and values of a position depend on
its token and the feature before it alone, so those of confirmed tokens need neither attention nor MLP.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.core.hardware.mesh import AnyMesh
from jaxserve.models import gated_mlp, grouped_attention
from jaxserve.models.attention import attend, plan_kind
from jaxserve.models.attention_metadata import of_group
from jaxserve.models.config.eagle_config import NUM_TAPS, EagleConfig
from jaxserve.models.config.layer_kind import LayerKind
from jaxserve.models.context import Context
from jaxserve.models.kv_heads import num_kv_heads_on
from jaxserve.models.linear import Linear, Weights, at_layer, whole
from jaxserve.models.param_spec import LayerSpecs, ParamSpec, matrix, norm
from jaxserve.models.params import Params, declare
from jaxserve.models.rms_norm import named_norm
from jaxserve.models.rotary import rope_tables
from pallas_kernels.paged_attention.batch_meta import AttentionMeta

QueriesKeysValues = tuple[Float[Array, "T N H"], Float[Array, "T K H"], Float[Array, "T K H"]]


def declare_eagle(config: EagleConfig, target_width: int, mesh: AnyMesh, dtype: Any) -> Params:
    """fuse [D, 3·target_width]   hidden_norm [D]   tokens [Vp]: the target's token of each entry of the vocabulary
    layers, final_norm, lm_head: of a model of one layer, whose qkv [K, (G+2)·H, 2D] reads two vectors.
    """
    # On every platform the layer's matrices are arrays of their own: a stack of one would be sliced, and so copied.
    model, of_layers = config.model, LayerSpecs(1, dtype, has_tuples=True)
    tree = declare(model, mesh, dtype, has_tuples=True)
    del tree["embed"]
    (stack,) = model.stacks
    kv_heads = num_kv_heads_on(model, mesh)
    attention = grouped_attention.declare(stack.kind.attention, 2 * model.d_model, kv_heads, of_layers)
    tree["layers"][stack.name]["qkv"] = attention["qkv"]
    return tree | {
        "fuse": matrix(model.d_model, NUM_TAPS * target_width, axes=(None, None), dtype=dtype),
        "hidden_norm": norm(model.d_model),
        "tokens": ParamSpec((tree["lm_head"].shape[0],), (None,), jnp.int32, 0.0),
    }


@jax.named_scope("fuse")
def fuse(params: Params, taps: Float[Array, "A T D"]) -> Float[Array, "T D"]:
    """The features of tokens."""
    side_by_side = jnp.moveaxis(taps, 0, 1).reshape(taps.shape[1], -1)
    return Linear(whole(params["fuse"]))(side_by_side)


def project(
    config: EagleConfig,
    params: Params,
    embedded: Float[Array, "T D"],
    features: Float[Array, "T D"],
    positions: Int[Array, "T"],
) -> QueriesKeysValues:
    """Queries, keys and values of tokens, from their embeddings and the features before them."""
    eps, kind, w = config.model.norm_eps, _kind(config), _layer(config, params)
    sides = named_norm(w, "attn_norm", embedded, eps), named_norm(params, "hidden_norm", features, eps)
    rope = rope_tables(kind.attention.rope, kind.attention.head_dim, positions)
    return grouped_attention.project(kind.attention, eps, w, jnp.concatenate(sides, axis=1), rope)


def after_attention(
    ctx: Context, config: EagleConfig, params: Params, features: Float[Array, "T D"], o: Float[Array, "T N H"]
) -> Float[Array, "T D"]:
    """The layer's output, the feature of a draft that is read next."""
    w, replicated = _layer(config, params), jax.NamedSharding(ctx.mesh, PartitionSpec())
    x = features + lax.with_sharding_constraint(grouped_attention.output(ctx.mesh, w, o), replicated)
    y = gated_mlp.apply(_kind(config).mlp, ctx.mesh, w, named_norm(w, "mlp_norm", x, config.model.norm_eps))
    return x + lax.with_sharding_constraint(y, replicated)


def run_eagle(
    ctx: Context,
    config: EagleConfig,
    params: Params,
    embedded: Float[Array, "T D"],
    features: Float[Array, "T D"],
    positions: Int[Array, "T"],
    meta: AttentionMeta,
    pool: Float[Array, "L P K page W2"],
) -> tuple[Float[Array, "T D"], Float[Array, "L P K page W2"]]:
    """The layer's outputs, and the pool with the tokens' keys and values. meta: of one KV group (`kind_meta`)."""
    attention = _kind(config).attention
    q, k, v = project(config, params, embedded, features, positions)
    meta = of_group(plan_kind(ctx, attention, meta, q.dtype, pool), 0)
    o, pool = attend(ctx, attention, q, k, v, pool, jnp.int32(0), meta)
    return after_attention(ctx, config, params, features, o), pool


def before_head(config: EagleConfig, params: Params, outputs: Float[Array, "T D"]) -> Float[Array, "T D"]:
    """What the head reads of the layer's outputs."""
    return named_norm(params, "final_norm", outputs, config.model.norm_eps)


def _kind(config: EagleConfig) -> LayerKind:
    (stack,) = config.model.stacks
    return stack.kind


def _layer(config: EagleConfig, params: Params) -> Weights:
    (stack,) = config.model.stacks
    return {name: at_layer(leaf, jnp.int32(0)) for name, leaf in params["layers"][stack.name].items()}
