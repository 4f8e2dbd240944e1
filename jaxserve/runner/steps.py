"""Device: the step: one jitted function from (weights, state, buffer) to (state, output); prefill, decode and mixed
batches all run it."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.config import ModelConfig
from jaxserve.models.layers import Context
from jaxserve.models.params import Params
from jaxserve.models.transformer import forward, logits
from jaxserve.runner.batch import unpack
from jaxserve.runner.output import DeviceLogprobs, pack_logprobs, pack_output
from jaxserve.runner.pack import BatchLayout
from jaxserve.runner.state import DeviceState
from jaxserve.sampling.batch import fork_slots
from jaxserve.sampling.counts import update_counts
from jaxserve.sampling.head import draw
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.processors import mask_padding
from pallas_kernels.page_ops.api import copy_pages

PROMPT_TILE = 64  # tokens whose prompt log-probabilities are made at once: never [T, V]


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What is static in every step of an engine."""

    config: ModelConfig
    mesh: Mesh
    attention_backend: str
    max_logprobs: int


def step(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], Int32[Array, "O2"] | None]:
    """Run a batch: write its keys and values, draw a token for each row that samples, keep both on the device.

    The last result holds the prompt's log-probabilities; None in decode buckets.
    """
    batch = unpack(layout, buffer, state)
    # Tokens count when they are read, so prompts, drawn tokens and recomputed ones all pass one rule.
    counts = update_counts(
        state.slots.counts,
        batch.sampling,
        tokens=batch.tokens,
        token_rows=jnp.where(batch.is_token, batch.token_rows, len(batch.slots)),
        positions=batch.positions,
        resets=batch.starts == 0,
    )
    slots = replace(state.slots, counts=counts)
    ctx = Context(settings.mesh, settings.attention_backend, batch.sampling.adapter[batch.token_rows])
    hidden, pool, _ = forward(ctx, settings.config, params, batch.tokens, batch.positions, batch.metas, state.pool)
    raw = _logits_if(jnp.any(batch.samples), ctx, settings, params, hidden[batch.last])
    # The token drawn stands at position kv_len: its randomness depends on nothing else of the batch.
    tokens, is_bad = draw(raw, batch.sampling, batch.kv_lens, slots)
    last_tokens = jnp.where(batch.samples, tokens, state.last_tokens[batch.slots])
    state = DeviceState(
        pool=pool,
        last_tokens=state.last_tokens.at[batch.slots].set(last_tokens),
        lengths=state.lengths.at[batch.slots].set(batch.kv_lens),
        slots=slots,
    )
    wanted = batch.samples & (batch.sampling.num_logprobs >= 0)
    logprobs = top_logprobs(raw, tokens, wanted, k=settings.max_logprobs)
    prompt = None if batch.targets is None else _prompt_logprobs(ctx, settings, params, hidden, batch.targets)
    return state, pack_output(tokens, is_bad & batch.samples, logprobs), prompt


def _logits_if(
    wanted: Bool[Array, ""], ctx: Context, settings: StepSettings, params: Params, hidden: Float[Array, "S D"]
) -> Float[Array, "S V"]:
    """Logits, the vocabulary's padding masked; or zeros, for free, when nobody wants them."""
    shape = (hidden.shape[0], params["embed"].shape[0])
    return lax.cond(
        wanted,
        lambda: mask_padding(logits(ctx, settings.config, params, hidden), settings.config.vocab_size),
        lambda: jnp.zeros(shape, jnp.float32),
    )


def _prompt_logprobs(
    ctx: Context, settings: StepSettings, params: Params, hidden: Float[Array, "T D"], targets: Int32[Array, "T"]
) -> Int32[Array, "O2"]:
    """Log-probabilities of each prompt token after the one before it, tile by tile; those nobody wants are free."""
    tile = min(PROMPT_TILE, len(targets))
    pad = -len(targets) % tile
    hidden = jnp.pad(hidden, ((0, pad), (0, 0))).reshape(-1, tile, hidden.shape[1])
    tiles = jnp.pad(targets, (0, pad), constant_values=-1).reshape(-1, tile)

    def one(args: tuple[jax.Array, jax.Array]) -> DeviceLogprobs:
        h, targets = args
        wanted = targets >= 0
        raw = _logits_if(jnp.any(wanted), ctx, settings, params, h)
        return top_logprobs(raw, jnp.maximum(targets, 0), wanted, k=settings.max_logprobs)

    parts = lax.map(one, (hidden, tiles))
    chosen, ranks, top_ids, top = (p.reshape(-1, *p.shape[2:])[: len(targets)] for p in parts)
    return pack_logprobs((chosen, ranks, top_ids, top))


def fork(
    state: DeviceState,
    src_pages: Int32[Array, "C"],
    dst_pages: Int32[Array, "C"],
    src_slots: Int32[Array, "F"],
    dst_slots: Int32[Array, "F"],
) -> DeviceState:
    """Copy partial pages and slot state of forked sequences; pairs of page 0 and of scratch slots are padding."""
    slots = fork_slots(state.slots, src_slots, dst_slots)
    return replace(state, pool=copy_pages(state.pool, src_pages, dst_pages), slots=slots)
