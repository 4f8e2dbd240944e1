"""Device: attention in the layers: each device computes its own heads with its shard of the KV pool."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import num_shards, spec
from jaxserve.kv.kv_state import PAGES_SPEC
from jaxserve.models.attention_metadata import kind_meta, of_group
from jaxserve.models.config.layer_kind import GroupedAttention
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from pallas_kernels.page_ops import api as page_ops
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta

QKV_SPEC = spec(None, "kv_heads", None)
WHOLE = PartitionSpec()


@jax.named_scope("attention_plan")
def plan_kind(
    ctx: Context, attention: GroupedAttention, meta: AttentionMeta, dtype: Any, pool: Float[Array, "Lg P K page W2"]
) -> AttentionMeta:
    """A kind's metadata (`kind_meta`) with its back end's plan, computed once a step for all layers and groups."""
    num_devices = num_shards(ctx.mesh, "kv_heads")
    plan = partial(
        ctx.plan,
        spec=spec_of(ctx, attention),
        model=ModelSizes(
            num_heads=attention.num_heads // num_devices,
            num_kv_heads=pool.shape[2] // num_devices,
            head_dim=attention.head_dim,
            page_size=ctx.page_layout.page_size(pool),
            dtype=dtype,
            pool_dtype=pool.dtype,
        ),
    )
    # Under the mesh, like attention itself: the back ends read the target device from it.
    plan = jax.shard_map(plan, mesh=ctx.mesh, in_specs=WHOLE, out_specs=WHOLE, check_vma=False)
    return replace(meta, plan=plan(of_group(meta, 0)).plan)


@jax.named_scope("attention")
def attend(
    ctx: Context,
    attention: GroupedAttention,
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    pool: Float[Array, "Lg P K page W2"],
    index_in_group: Int[Array, ""],
    meta: AttentionMeta,
) -> tuple[Float[Array, "T N H"], Float[Array, "Lg P K page W2"]]:
    """The attention op of one layer; meta: of its group. The devices exchange nothing."""
    op = jax.shard_map(
        partial(ctx.attention, spec=spec_of(ctx, attention)),
        mesh=ctx.mesh,
        in_specs=(QKV_SPEC, QKV_SPEC, QKV_SPEC, PAGES_SPEC, WHOLE, WHOLE),
        out_specs=(QKV_SPEC, PAGES_SPEC),
        check_vma=False,
    )
    return op(q, k, v, pool, index_in_group, meta)


@jax.named_scope("write_kv")
def write_kv(
    ctx: Context,
    k: Float[Array, "T K H"],
    v: Float[Array, "T K H"],
    pool: Float[Array, "Lg P K page W2"],
    index_in_group: Int[Array, ""],
    slots: Int[Array, "T"],
    end: Int[Array, ""],
) -> Float[Array, "Lg P K page W2"]:
    """The pool with keys and values of the first `end` tokens at their slots, without attention."""

    def write(
        pool: jax.Array, layer: jax.Array, k: jax.Array, v: jax.Array, slots: jax.Array, end: jax.Array
    ) -> jax.Array:
        return page_ops.write(pool, layer, k, v, slots, 0, end, layout=ctx.page_layout)

    op = jax.shard_map(
        write,
        mesh=ctx.mesh,
        in_specs=(PAGES_SPEC, WHOLE, QKV_SPEC, QKV_SPEC, WHOLE, WHOLE),
        out_specs=PAGES_SPEC,
        check_vma=False,
    )
    return op(pool, index_in_group, k, v, slots, end)


def spec_of(ctx: Context, attention: GroupedAttention) -> AttentionSpec:
    """The static arguments of the attention op."""
    return AttentionSpec(
        scale=attention.scale,
        window=attention.window,
        softcap=attention.softcap,
        layout=ctx.page_layout,
        backend=ctx.attention_backend,
        max_query_len=ctx.max_query_len,
    )


def check_backend(settings: Settings) -> None:
    """Raise ConfigError, with every back end's reason, if the attention back end does not support the model.

    Traces the op for a decode batch and for a mixed batch; nothing is compiled or allocated.
    """
    layout = settings.layout

    def run(attention: GroupedAttention, num_rows: int, num_tokens: int) -> None:
        def ints(*shape: int) -> Int[Array, "*shape"]:
            return jnp.zeros(shape, jnp.int32)

        batch = {"cu_q_lens": ints(num_rows + 1), "kv_lens": ints(num_rows), "num_seqs": ints(), "num_decodes": ints()}
        meta = kind_meta(
            ints(1, num_rows, 1), ints(1, num_rows), num_tokens=num_tokens, page_size=layout.page_size, **batch
        )
        ctx = Context(settings.mesh, settings.attention_backend, page_layout=settings.page_layout)
        pool = jnp.zeros(layout.shape(2), layout.dtype)
        q = jnp.zeros((num_tokens, attention.num_heads, attention.head_dim), settings.dtype)
        k = jnp.zeros((num_tokens, layout.num_kv_heads, attention.head_dim), settings.dtype)
        meta = plan_kind(ctx, attention, meta, q.dtype, pool)
        attend(ctx, attention, q, k, k, pool, jnp.int32(0), of_group(meta, 0))

    try:
        for kind in settings.config.kinds:
            for num_tokens in (8, 32):
                jax.eval_shape(partial(run, kind.attention, 8, num_tokens))
    except NotImplementedError as error:
        raise ConfigError(
            f"attention_backend={settings.attention_backend!r} cannot serve this model: {error}", "attention_backend"
        ) from error
