"""Device: the step: one jitted function from (weights, state, buffer) to (state, output); prefill, decode and mixed
batches all run it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.kv.pages import copy_pages
from jaxserve.models.config import ModelConfig
from jaxserve.models.layers import Context
from jaxserve.models.params import Params
from jaxserve.models.transformer import forward, logits
from jaxserve.runner.batch import DeviceBatch, unpack
from jaxserve.runner.output import DeviceLogprobs, pack_output
from jaxserve.runner.pack import BatchLayout
from jaxserve.runner.prompts import PromptResults, pooled_states, prompt_logprobs
from jaxserve.runner.state import DeviceState
from jaxserve.sampling.batch import SlotState, fork_slots
from jaxserve.sampling.by_rows import by_rows
from jaxserve.sampling.counts import update_counts
from jaxserve.sampling.head import draw
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.processors import mask_padding
from pallas_kernels.layouts import ROWS, PageLayout


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What is static in every step of an engine."""

    config: ModelConfig
    mesh: Mesh
    attention_backend: str
    max_logprobs: int
    page_layout: PageLayout = ROWS


def step(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], PromptResults | None]:
    """Run a batch: write its keys and values, draw a token for each row that samples, keep both on the device.

    The last result speaks of prompts; None in decode buckets.
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
    adapters = batch.sampling.adapter[batch.token_rows]
    ctx = Context(settings.mesh, settings.attention_backend, adapters, page_layout=settings.page_layout)
    hidden, kv_pool, _ = forward(ctx, settings.config, params, batch.tokens, batch.positions, batch.metas, state.pool)

    def make_logits(hidden: Float[Array, "R D"]) -> Float[Array, "R V"]:
        return logits(ctx, settings.config, params, hidden)

    tokens, is_bad, logprobs = _draw(settings, make_logits, batch, hidden, slots)
    last_tokens = jnp.where(batch.samples, tokens, state.last_tokens[batch.slots])
    state = DeviceState(
        pool=kv_pool,
        last_tokens=state.last_tokens.at[batch.slots].set(last_tokens),
        lengths=state.lengths.at[batch.slots].set(batch.kv_lens),
        slots=slots,
    )
    prompts = None
    if batch.targets is not None:

        def score(hidden: Float[Array, "R D"], *of_rows: Int32[Array, "R"]) -> DeviceLogprobs:
            return by_rows(settings.mesh, partial(_score, settings), (make_logits(hidden), *of_rows))

        logprobs_of_prompts = prompt_logprobs(score, batch, hidden, settings.max_logprobs)
        prompts = PromptResults(logprobs_of_prompts, pooled_states(batch, hidden))
    return state, pack_output(tokens, is_bad & batch.samples, logprobs), prompts


def _draw(
    settings: StepSettings,
    make_logits: Callable[[jax.Array], jax.Array],
    batch: DeviceBatch,
    hidden: Float[Array, "T D"],
    slots: SlotState,
) -> tuple[Int32[Array, "S"], Bool[Array, "S"], DeviceLogprobs]:
    """(tokens, is_bad, log-probabilities) of the rows; zeros, for free, when none of them samples."""

    def draw_rows(rows: Any, slots: SlotState) -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        raw, sampling, kv_lens, num_wanted = rows
        raw = mask_padding(raw, settings.config.vocab_size)
        # The token drawn stands at position kv_len: its randomness depends on nothing else of the batch.
        tokens, is_bad = draw(raw, sampling, kv_lens, slots)
        return tokens, is_bad, top_logprobs(raw, tokens, num_wanted, k=settings.max_logprobs)

    def drawn() -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        num_wanted = jnp.where(batch.samples, batch.sampling.num_logprobs, -1)
        rows = (make_logits(hidden[batch.last]), batch.sampling, batch.kv_lens, num_wanted)
        return by_rows(settings.mesh, draw_rows, rows, slots)

    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(drawn))
    return lax.cond(jnp.any(batch.samples), drawn, lambda: nothing)


def _score(settings: StepSettings, rows: tuple[jax.Array, jax.Array, jax.Array]) -> DeviceLogprobs:
    """Log-probabilities of targets under raw logits: rows are (logits, targets, candidates wanted)."""
    raw, targets, num_wanted = rows
    return top_logprobs(mask_padding(raw, settings.config.vocab_size), targets, num_wanted, k=settings.max_logprobs)


def fork(
    mesh: Mesh,
    state: DeviceState,
    src_pages: Int32[Array, "C"],
    dst_pages: Int32[Array, "C"],
    src_slots: Int32[Array, "F"],
    dst_slots: Int32[Array, "F"],
) -> DeviceState:
    """Copy partial pages and slot state of forked sequences; pairs of page 0 and of scratch slots are padding."""
    slots = fork_slots(state.slots, src_slots, dst_slots)
    return replace(state, pool=copy_pages(mesh, state.pool, src_pages, dst_pages), slots=slots)
