"""Device: `step`, the jitted function from (weights, state, buffer) to (state, output) that runs prefill, decode and
mixed batches."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.core.hardware.mesh import replicated
from jaxserve.kv.page_copies import copy_pages
from jaxserve.kv.pool_layout import POOL_SPEC
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from jaxserve.models.row_tiles import each_tile
from jaxserve.models.transformer import forward, logits
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.decode_loop import DrawnTokens, run_decode_rounds
from jaxserve.runner.step.device_batch import DeviceBatch, StepInputs, first_inputs, unpack
from jaxserve.runner.step.prompt_outputs import pooled_states, prompt_logprobs
from jaxserve.runner.step.step_output import DeviceLogprobs, ExtraOutputs, pack_logprobs, pack_output
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.penalty_counts import update_counts
from jaxserve.sampling.row_sharding import shard_rows
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.slot_state import SlotState, fork_slots


@dataclass(frozen=True, slots=True)
class StepSettings:
    """Settings that are static in every step of an engine.

    max_logprobs: candidates in each log-probability entry. tile_rows: rows of a tile in a batch-invariant engine
    (`each_tile`); None: all rows at once.
    """

    model: Settings
    max_logprobs: int
    tile_rows: int | None = None


def step(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], ExtraOutputs]:
    """Run a batch: write its keys and values, draw a token for each row that samples, keep both on the device.

    A decode bucket repeats this for as many decode rounds as its rows are planned for (multi-step decoding).
    """
    if layout.bucket.is_decode:

        def advance(state: DeviceState, inputs: StepInputs, is_active: jax.Array) -> tuple[DeviceState, DrawnTokens]:
            state, inputs, is_active = _keep_sharding(settings, state), *_replicate(settings, (inputs, is_active))
            batch = _whole_batch(settings, layout, buffer, inputs)
            state, drawn, _ = _advance(settings, params, state, batch, is_active, resets=None)
            return _keep_sharding(settings, state), _replicate(settings, drawn)

        state, rounds = run_decode_rounds(advance, layout, buffer, state)
        output = pack_output(rounds.num_rounds, rounds.tokens, rounds.is_bad)
        return state, output, ExtraOutputs(rounds.logprobs.reshape(-1), None, None)
    batch = _whole_batch(settings, layout, buffer, first_inputs(layout, buffer, state))
    all_active = jnp.ones_like(batch.samples)
    state, drawn, hidden = _advance(settings, params, state, batch, all_active, resets=batch.starts == 0)

    def score(hidden: Float[Array, "R D"], targets: Int32[Array, "R"], num_wanted: Int32[Array, "R"]) -> DeviceLogprobs:
        raw = _logits(settings, params, num_wanted >= 0, hidden)
        return shard_rows(settings.model.mesh, partial(_score, settings), (raw, targets, num_wanted))

    output = pack_output(jnp.int32(1), drawn.tokens[None], drawn.is_bad[None])
    scored = prompt_logprobs(score, batch, hidden, settings.max_logprobs)
    return state, output, ExtraOutputs(drawn.logprobs, scored, pooled_states(batch, hidden))


def _whole_batch(
    settings: StepSettings, layout: BatchLayout, buffer: Int32[Array, "B"], inputs: StepInputs
) -> DeviceBatch:
    """The batch, whole on every device.

    XLA alone divides its columns by rows, as drawing does, and exchanges them where they are used: page tables in every
    layer (160 exchanges in a decode round of Llama 3 8B on four v6e, 71 so), and on TPU7x hidden states, behind two
    products of half of them that each read the whole head.
    """
    return _replicate(settings, unpack(layout, buffer, inputs))


def _advance(
    settings: StepSettings,
    params: Params,
    state: DeviceState,
    batch: DeviceBatch,
    is_active: Bool[Array, "S"],
    *,
    resets: Bool[Array, "S"] | None,
) -> tuple[DeviceState, DrawnTokens, Float[Array, "T D"]]:
    """One forward pass; inactive rows rewrite identical KV: a no-op. resets: as in `update_counts`."""
    # Tokens are counted when they are read: the same rule serves prompts, drawn tokens and recomputed tokens.
    is_counted = batch.is_token & is_active[batch.token_rows]
    counts = update_counts(
        state.slots.counts,
        batch.sampling,
        tokens=batch.tokens,
        token_rows=jnp.where(is_counted, batch.token_rows, len(batch.slots)),
        positions=batch.positions,
        resets=resets,
    )
    slots = replace(state.slots, counts=counts)
    ctx, config = _context(settings), settings.model.config
    hidden, kv_pool, _ = forward(ctx, config, params, batch.tokens, batch.positions, batch.metas, state.pool)
    samples = batch.samples & is_active
    tokens, is_bad, logprobs = _draw(settings, params, batch._replace(samples=samples), hidden, slots)
    last_tokens = jnp.where(samples, tokens, state.last_tokens[batch.slots])
    state = DeviceState(
        pool=kv_pool,
        last_tokens=state.last_tokens.at[batch.slots].set(last_tokens),
        lengths=state.lengths.at[batch.slots].set(batch.kv_lens),
        slots=slots,
    )
    return state, DrawnTokens(tokens, is_bad & samples, pack_logprobs(logprobs)), hidden


def _keep_sharding(settings: StepSettings, state: DeviceState) -> DeviceState:
    """Constrain the state to its sharding between steps.

    XLA alone shards a loop's carry by rows and vocabulary: devices then exchange all penalty counts in every decode
    round, 587 MB for 256 rows of Llama 3 8B on four chips.
    """
    sharding = NamedSharding(settings.model.mesh, POOL_SPEC)
    pool: jax.Array = lax.with_sharding_constraint(state.pool, sharding)
    return replace(_replicate(settings, replace(state, pool=None)), pool=pool)


def _replicate[T](settings: StepSettings, tree: T) -> T:
    return lax.with_sharding_constraint(tree, replicated(settings.model.mesh))


def _context(settings: StepSettings) -> Context:
    model = settings.model
    return Context(model.mesh, model.attention_backend, page_layout=model.page_layout, tile_rows=settings.tile_rows)


def _logits(
    settings: StepSettings, params: Params, is_wanted: Bool[Array, "R"], hidden: Float[Array, "R D"]
) -> Float[Array, "R V"]:
    head = partial(logits, _context(settings), settings.model.config, params)
    return each_tile(settings.tile_rows, is_wanted, head, hidden)


@jax.named_scope("sample")
def _draw(
    settings: StepSettings,
    params: Params,
    batch: DeviceBatch,
    hidden: Float[Array, "T D"],
    slots: SlotState,
) -> tuple[Int32[Array, "S"], Bool[Array, "S"], DeviceLogprobs]:
    """(tokens, is_bad, log-probabilities) of the rows; zeros, at no cost, when no row samples."""

    def draw_rows(rows: tuple[Any, ...], slots: SlotState) -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        return each_tile(settings.tile_rows, rows[-1], partial(draw_tile, slots), *rows)

    def draw_tile(
        slots: SlotState, raw: jax.Array, sampling: SamplingBatch, kv_lens: jax.Array, samples: jax.Array
    ) -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        raw = mask_padding(raw, settings.model.config.vocab_size)
        # The drawn token's position is kv_len: its random numbers depend on nothing else of the batch.
        tokens, is_bad = sample_tokens(raw, sampling, kv_lens, slots)
        num_wanted = jnp.where(samples, sampling.num_logprobs, -1)
        return tokens, is_bad, top_logprobs(raw, tokens, num_wanted, k=settings.max_logprobs)

    def drawn() -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        raw = _logits(settings, params, batch.samples, hidden[batch.last])
        rows = (raw, batch.sampling, batch.kv_lens, batch.samples)
        return shard_rows(settings.model.mesh, draw_rows, rows, slots)

    def zeros(shape: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.zeros(shape.shape, shape.dtype)

    nothing = jax.tree.map(zeros, jax.eval_shape(drawn))
    return lax.cond(jnp.any(batch.samples), drawn, lambda: nothing)


def _score(settings: StepSettings, rows: tuple[jax.Array, jax.Array, jax.Array]) -> DeviceLogprobs:
    """Log-probabilities of targets under raw logits: rows are (logits, targets, candidates wanted)."""

    def score_tile(raw: jax.Array, targets: jax.Array, num_wanted: jax.Array) -> DeviceLogprobs:
        raw = mask_padding(raw, settings.model.config.vocab_size)
        return top_logprobs(raw, targets, num_wanted, k=settings.max_logprobs)

    return each_tile(settings.tile_rows, rows[-1] >= 0, score_tile, *rows)


def fork(
    mesh: Mesh,
    state: DeviceState,
    src_pages: Int32[Array, "C"],
    dst_pages: Int32[Array, "C"],
    src_slots: Int32[Array, "F"],
    dst_slots: Int32[Array, "F"],
) -> DeviceState:
    """Copy the partial pages and slot state of forked sequences; pairs of page 0 or of scratch slots are padding."""
    slots = fork_slots(state.slots, src_slots, dst_slots)
    return replace(state, pool=copy_pages(mesh, state.pool, src_pages, dst_pages), slots=slots)
