"""Device: the forward pass of every family: a loop over the rows of the layer table."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxserve.core.hardware.mesh import sharding
from jaxserve.models.attention import plan_kind
from jaxserve.models.attention_metadata import of_group
from jaxserve.models.config.model_config import Layer, ModelConfig, Stack
from jaxserve.models.context import Context
from jaxserve.models.layer import run_layer
from jaxserve.models.layer_adapters import LayerAdapters
from jaxserve.models.layer_loops import Row, layer_loops, layer_rows, run_in_turns
from jaxserve.models.linear import Linear, rows_of, whole
from jaxserve.models.params import Params
from jaxserve.models.rms_norm import named_norm
from jaxserve.models.rotary import rope_tables
from jaxserve.models.row_tiles import each_tile
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


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
    table: tuple[Layer, ...] | None = None,
    tap_layers: tuple[int, ...] = (),
    adapters: LoraBatch | None = None,
) -> tuple[Float[Array, "T D"], Float[Array, "Lg P K page W2"], Float[Array, "A T D"]]:
    """Hidden states after the final norm, the pool with the tokens' keys and values, and the taps.

    metas: one for each layer kind. table: the layers that run, and where their KV lies; None: all, as the model's KV
    groups have them. tap_layers: rows of the table whose inputs are returned, in that order (draft heads, embeddings).
    adapters: of the tokens; None: none has one.
    """
    table = config.layer_table if table is None else table
    # Tokens that devices have drawn apart would divide the layers' rows, and weights would be read once for each part.
    x = lax.with_sharding_constraint(embed(config, params, tokens), sharding(ctx.mesh))
    is_token = jnp.arange(len(tokens)) < metas[0].cu_q_lens[metas[0].num_seqs]
    each = partial(each_tile, ctx.tiles, is_token)
    inputs = {
        kind: KindInputs(
            plan_kind(ctx, kind.attention, meta, x.dtype, pool),
            each(partial(rope_tables, kind.attention.rope, kind.attention.head_dim), positions),
        )
        for kind, meta in zip(config.kinds, metas, strict=True)
    }

    def branch(stack: Stack) -> Callable[..., Carry]:
        meta, rope = inputs[stack.kind]
        first_group = config.group_ranges[config.kinds.index(stack.kind)][0]
        run = partial(run_layer, ctx, stack.kind, config.norm_eps, each, params["layers"][stack.name])

        def run_one(carry: Carry, index: jax.Array, group: jax.Array, index_in_group: jax.Array) -> Carry:
            of_layer = None if adapters is None else LayerAdapters(adapters, first_group + group)
            x, pool = run(index, carry.x, carry.pool, index_in_group, of_group(meta, group), rope, of_layer)
            return carry._replace(x=x, pool=pool)

        return run_one

    branches = [branch(stack) for stack in config.stacks]

    def run_turn(turn: tuple[int, ...] | None, carry: Carry, rows: list[Row]) -> Carry:
        for i, (stack, *where, tap) in enumerate(rows):
            if tap_layers:
                carry = carry._replace(taps=carry.taps.at[tap].set(carry.x, mode="drop"))
            run = branches[turn[i]] if turn else partial(lax.switch, stack, branches)
            carry = run(carry, *where)
        return carry

    rows, platform = layer_rows(table, tap_layers), ctx.mesh.devices.flat[0].platform
    carry = Carry(x, pool, jnp.zeros((len(tap_layers), *x.shape), x.dtype))
    with jax.named_scope("layers"):
        for begin, end, turn in layer_loops(config.layer_table, table, platform):
            carry = run_in_turns(partial(run_turn, turn), carry, rows[begin:end], len(turn or (0,)))
    return each(partial(named_norm, params, "final_norm", eps=config.norm_eps), carry.x), carry.pool, carry.taps


@jax.named_scope("embed")
def embed(config: ModelConfig, params: Params, tokens: Int[Array, "T"]) -> Float[Array, "T D"]:
    x = rows_of(params["embed"], tokens, is_multiplied=config.is_tied)
    return x if config.embed_scale == 1.0 else x * jnp.asarray(config.embed_scale, x.dtype)


@jax.named_scope("head")
def logits(ctx: Context, config: ModelConfig, params: Params, hidden: Float[Array, "S D"]) -> Float[Array, "S V"]:
    """Next-token logits, float32, over the padded vocabulary, which is sharded over the devices like the head."""
    weight = whole(params["embed" if config.is_tied else "lm_head"])
    z = Linear(weight, divided_axis=0).in_dtype(hidden, jnp.float32)
    z = lax.with_sharding_constraint(z, sharding(ctx.mesh, None, "vocab"))
    return z if config.final_softcap is None else jnp.tanh(z / config.final_softcap) * config.final_softcap
