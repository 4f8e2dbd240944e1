"""Device: `step`, the jitted function from (weights, state, buffer) to (state, output) that runs prefill, decode and
mixed batches."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.core.hardware.mesh import replicated
from jaxserve.kv.page_copies import copy_pages
from jaxserve.kv.pool_layout import POOL_SPEC
from jaxserve.models.params import Params
from jaxserve.models.transformer import forward
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.decode_loop import DrawnTokens, run_decode_rounds
from jaxserve.runner.step.device_batch import DeviceBatch, StepInputs, first_inputs, unpack
from jaxserve.runner.step.draw import draw, score_states
from jaxserve.runner.step.prompt_outputs import pooled_states, prompt_logprobs
from jaxserve.runner.step.step_output import ExtraOutputs, pack_logprobs, pack_output
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.sampling.penalty_counts import update_counts
from jaxserve.sampling.slot_state import fork_slots


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
        output = pack_output(rounds.num_rounds, rounds.num_tokens, rounds.tokens, rounds.is_bad)
        return state, output, ExtraOutputs(rounds.logprobs.reshape(-1), None, None)
    batch = _whole_batch(settings, layout, buffer, first_inputs(layout, buffer, state))
    all_active = jnp.ones_like(batch.samples)
    state, drawn, hidden = _advance(settings, params, state, batch, all_active, resets=batch.starts == 0)

    output = pack_output(jnp.int32(1), batch.samples.astype(jnp.int32), drawn.tokens[None], drawn.is_bad[None])
    scored = prompt_logprobs(partial(score_states, settings, params), batch, hidden, settings.max_logprobs)
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
    inputs = batch.tokens, batch.positions, batch.metas
    hidden, kv_pool, _ = forward(settings.context, settings.model.config, params, *inputs, state.pool)
    samples = batch.samples & is_active
    tokens, is_bad, logprobs = draw(settings, params, batch._replace(samples=samples), hidden, slots)
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
