"""Device: the forward pass of every family: a loop over the rows of the layer table."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.core.hardware.mesh import num_shards, sharding
from jaxserve.models.attention import attend, plan_kind
from jaxserve.models.attention_metadata import of_group
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.layers import Context, gated_mlp, rms_norm, rope_tables, rotate
from jaxserve.models.linear import Linear, at_layer
from jaxserve.models.params import Params
from jaxserve.models.row_tiles import each_tile
from pallas_kernels.paged_attention.batch_meta import AttentionMeta

MAX_TURN = 8  # layers that one turn of the loop runs at most, each of which is compiled


class KindInputs(NamedTuple):
    """The batch's inputs to one kind of layers.

    meta: attention metadata of all KV groups of the kind (`kind_meta`), with the back end's plan.
    rope: cosines and sines [T, R]; R: half the rotated values.
    """

    meta: AttentionMeta
    rope: tuple[jax.Array, jax.Array]


class Carry(NamedTuple):
    """The carry of the layer scan. The pool is carried, never sliced: as a scan input it would be copied."""

    x: Float[Array, "T D"]
    pool: Float[Array, "Lg P K page W2"]
    taps: Float[Array, "A T D"]


def forward(
    ctx: Context,
    config: ModelConfig,
    params: Params,
    tokens: Int[Array, "T"],
    positions: Int[Array, "T"],
    metas: tuple[AttentionMeta, ...],
    pool: Float[Array, "Lg P K page W2"],
    *,
    tap_layers: tuple[int, ...] = (),
) -> tuple[Float[Array, "T D"], Float[Array, "Lg P K page W2"], Float[Array, "A T D"]]:
    """Hidden states after the final norm, the pool with the tokens' keys and values, and the taps.

    metas: one for each layer kind. tap_layers: layers whose inputs are returned, in that order (draft heads,
    embeddings).
    """
    x = embed(config, params, tokens)
    is_token = jnp.arange(len(tokens)) < metas[0].cu_q_lens[metas[0].num_seqs]
    each = partial(each_tile, ctx.tile_rows, is_token)
    kinds = tuple(
        KindInputs(
            plan_kind(ctx, config, k, meta, x.dtype, pool),
            each(partial(rope_tables, kind.rope, config.head_dim), positions),
        )
        for k, (kind, meta) in enumerate(zip(config.kinds, metas, strict=True))
    )
    branches = [
        partial(_layer, ctx, config, k, params["layers"][kind.name], each) for k, kind in enumerate(config.kinds)
    ]

    def run_layer(carry: Carry, row: jax.Array, run: Callable[..., Carry]) -> Carry:
        _, index, group, index_in_group, tap = row
        taps = carry.taps.at[tap].set(carry.x, mode="drop") if tap_layers else carry.taps
        return run(kinds, carry._replace(taps=taps), (index, group, index_in_group))

    turn = kinds_of_turn(config.layer_kinds, ctx.mesh.devices.flat[0].platform)

    def run_turn(carry: Carry, rows: jax.Array) -> tuple[Carry, None]:
        for i in range(len(rows)):
            carry = run_layer(carry, rows[i], branches[turn[i]] if turn else partial(lax.switch, rows[i, 0], branches))
        return carry, None

    rows, size = layer_rows(config, tap_layers), len(turn or (0,))
    num_whole = len(rows) // size * size
    carry = Carry(x, pool, jnp.zeros((len(tap_layers), *x.shape), x.dtype))
    with jax.named_scope("layers"):
        carry, _ = lax.scan(run_turn, carry, rows[:num_whole].reshape(-1, size, rows.shape[1]))
        carry, _ = run_turn(carry, rows[num_whole:])
    return each(partial(_norm, config, params, "final_norm"), carry.x), carry.pool, carry.taps


def kinds_of_turn(layer_kinds: tuple[int, ...], platform: str) -> tuple[int, ...] | None:
    """The kinds of the layers that a turn of the loop over all layers runs: of as many as repeat in the model.

    None: a turn runs one layer, whose kind a condition selects. That is less to compile; but on a GPU the host would
    wait for each condition, and the layer's weights would be copied for it (jaxlib 0.11.2).
    """
    if len(set(layer_kinds)) > 1 and platform != "gpu":
        return None
    for size in range(1, MAX_TURN + 1):
        if all(kind == layer_kinds[i % size] for i, kind in enumerate(layer_kinds)):
            return layer_kinds[:size]
    return None


def layer_rows(config: ModelConfig, tap_layers: tuple[int, ...] = ()) -> Int[Array, "L 5"]:
    """The layer table as an array: kind, index in kind, group, index in group, tap index (past the last: no tap)."""
    rows = [
        (
            row.kind,
            row.index_in_kind,
            row.group,
            row.index_in_group,
            tap_layers.index(i) if i in tap_layers else len(tap_layers),
        )
        for i, row in enumerate(config.layer_table)
    ]
    return jnp.array(rows, jnp.int32)


@jax.named_scope("embed")
def embed(config: ModelConfig, params: Params, tokens: Int[Array, "T"]) -> Float[Array, "T D"]:
    x = params["embed"].at[tokens].get(mode="promise_in_bounds")
    return x if config.embed_scale == 1.0 else x * jnp.asarray(config.embed_scale, x.dtype)


@jax.named_scope("head")
def logits(ctx: Context, config: ModelConfig, params: Params, hidden: Float[Array, "S D"]) -> Float[Array, "S V"]:
    """Next-token logits, float32, over the padded vocabulary, which is sharded over the devices like the head."""
    z = Linear(params["embed" if config.is_tied else "lm_head"]).in_float32(hidden)
    z = lax.with_sharding_constraint(z, sharding(ctx.mesh, None, "vocab"))
    return z if config.final_softcap is None else jnp.tanh(z / config.final_softcap) * config.final_softcap


def _layer(
    ctx: Context,
    config: ModelConfig,
    kind: int,
    stack: Params,
    each: Callable[..., Any],
    kinds: tuple[KindInputs, ...],
    carry: Carry,
    where: tuple[jax.Array, jax.Array, jax.Array],
) -> Carry:
    """One layer: attention and MLP, with their norms, added to the residual. each: `each_tile` over the tokens."""
    index, group, index_in_group = where
    meta, rope = of_group(kinds[kind].meta, group), kinds[kind].rope

    def weights() -> Params:
        with jax.named_scope("weights"):
            return {name: at_layer(leaf, index) for name, leaf in stack.items()}

    def project(x: jax.Array, rope: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        return _project(config, weights(), x, rope)

    def add(x: jax.Array, o: jax.Array) -> jax.Array:
        return _add(ctx, config, weights(), x, o)

    q, k, v = each(project, carry.x, rope)
    o, pool = attend(ctx, config, kind, q, k, v, carry.pool, index_in_group, meta)
    return Carry(each(add, carry.x, o), pool, carry.taps)


def _project(
    config: ModelConfig, w: Params, x: Float[Array, "T D"], rope: tuple[jax.Array, jax.Array]
) -> tuple[Float[Array, "T N H"], Float[Array, "T K H"], Float[Array, "T K H"]]:
    """Queries and keys with rotary embedding, and values."""
    num_tokens, h = x.shape[0], config.head_dim
    x = _norm(config, w, "attn_norm", x)
    with jax.named_scope("qkv"):
        qkv = Linear(w["qkv"], w["qkv_bias"] if config.has_qkv_bias else None)(x)  # [T, K, (G+2)*H]
    split = qkv.shape[-1] - 2 * h
    q = qkv[..., :split].reshape(num_tokens, config.num_heads, h)
    k, v = qkv[..., split : split + h], qkv[..., split + h :]
    if config.has_qk_norm:
        q, k = _norm(config, w, "q_norm", q), _norm(config, w, "k_norm", k)
    return rotate(q, *rope), rotate(k, *rope), v


def _add(
    ctx: Context, config: ModelConfig, w: Params, x: Float[Array, "T D"], o: Float[Array, "T N H"]
) -> Float[Array, "T D"]:
    """The residual plus the projected attention output, plus the MLP of the sum."""
    norm, whole = partial(_norm, config, w), jax.NamedSharding(ctx.mesh, PartitionSpec())
    with jax.named_scope("o"):
        y = Linear(w["o"])(o.reshape(o.shape[0], -1))
    y = lax.with_sharding_constraint(y, whole)
    x = x + (norm("post_attn_norm", y) if config.has_post_norms else y)

    gate_up = Linear(w["gate_up"], has_divided_columns=num_shards(ctx.mesh, "mlp") > 1)
    y = gated_mlp(norm("mlp_norm", x), gate_up, Linear(w["down"]), config.activation)
    y = lax.with_sharding_constraint(y, whole)
    return x + (norm("post_mlp_norm", y) if config.has_post_norms else y)


def _norm(config: ModelConfig, w: Params, name: str, x: Float[Array, "*b D"]) -> Float[Array, "*b D"]:
    with jax.named_scope(name):
        return rms_norm(x, w[name], config.norm_eps)
