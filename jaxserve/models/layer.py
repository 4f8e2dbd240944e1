"""Device: one layer: attention and MLP, each with a norm before it, added to the residual."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.models import gated_mlp, grouped_attention
from jaxserve.models.attention import attend
from jaxserve.models.config.layer_kind import LayerKind
from jaxserve.models.context import Context
from jaxserve.models.layer_adapters import NOTHING, Added, LayerAdapters, added_by
from jaxserve.models.linear import Weights, at_layer
from jaxserve.models.param_spec import LayerSpecs
from jaxserve.models.rms_norm import named_norm
from pallas_kernels.matmul.matmul_spec import Stacked
from pallas_kernels.paged_attention.batch_meta import AttentionMeta

Residual = Float[Array, "T D"]
Pool = Float[Array, "Lg P K page W2"]


def declare(kind: LayerKind, d_model: int, num_kv_heads: int, of_layers: LayerSpecs) -> dict[str, Any]:
    """The parameters of layers of a kind: those of attention and MLP, and norms [D]."""
    names = ["attn_norm", "mlp_norm"]
    if kind.has_post_norms:
        names += ["post_attn_norm", "post_mlp_norm"]
    return {
        **grouped_attention.declare(kind.attention, d_model, num_kv_heads, of_layers),
        **gated_mlp.declare(kind.mlp, d_model, of_layers),
        **{name: of_layers.norm(d_model) for name in names},
    }


def run_layer(
    ctx: Context,
    kind: LayerKind,
    eps: float,
    each: Callable[..., Any],
    params: dict[str, Stacked],
    index: Int[Array, ""],
    x: Residual,
    pool: Pool,
    index_in_group: Int[Array, ""],
    meta: AttentionMeta,
    rope: tuple[jax.Array, jax.Array],
    adapters: LayerAdapters | None = None,
) -> tuple[Residual, Pool]:
    """The residual after the layer, and the pool with the tokens' keys and values.

    eps: of norms. each: `each_tile` over the tokens. params, index: the weights of a stack, and the layer's index in
    it. index_in_group, meta: of the layer's KV group. rope: the kind's cosines and sines. adapters: of the batch.
    """

    def weights() -> Weights:
        with jax.named_scope("weights"):
            return {name: at_layer(leaf, index) for name, leaf in params.items()}

    def added(pool: Pool, places: jax.Array | None) -> Added:
        return NOTHING if adapters is None else added_by(ctx, adapters, places, pool, index_in_group)

    def before(
        x: jax.Array, rope: tuple[jax.Array, jax.Array], places: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        w = weights()
        x = named_norm(w, "attn_norm", x, eps)
        return grouped_attention.project(kind.attention, eps, w, x, rope, added(pool, places))

    def after(pool: Pool, x: jax.Array, o: jax.Array, places: jax.Array | None) -> jax.Array:
        w, to = weights(), added(pool, places)
        norm, whole = partial(named_norm, w, eps=eps), jax.NamedSharding(ctx.mesh, PartitionSpec())
        y = lax.with_sharding_constraint(grouped_attention.output(ctx.mesh, w, o, to), whole)
        x = x + norm("post_attn_norm", x=y)
        y = lax.with_sharding_constraint(gated_mlp.apply(kind.mlp, ctx.mesh, w, norm("mlp_norm", x=x), to), whole)
        return x + norm("post_mlp_norm", x=y)

    places = None if adapters is None else adapters.batch.places
    q, k, v = each(before, x, rope, places)
    o, pool = attend(ctx, kind.attention, q, k, v, pool, index_in_group, meta)
    # Of the pool as attention returns it: one that is also read as it was before would be copied.
    return each(partial(after, pool), x, o, places), pool
