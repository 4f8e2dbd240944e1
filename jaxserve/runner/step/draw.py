"""Device: from hidden states to logits, and from these to tokens and log-probabilities."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.params import Params
from jaxserve.models.row_tiles import each_tile
from jaxserve.models.transformer import logits
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.step.device_batch import Heads
from jaxserve.runner.step.step_output import DeviceLogprobs, no_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.logprobs import top_logprobs
from jaxserve.sampling.row_sharding import shard_rows
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.sampling_batch import SamplingBatch
from jaxserve.sampling.slot_state import SlotState

BLOCK_ROWS = 8
"""Rows whose logits are computed again at once: 4 MB for Llama 3, where those of 64 rows take 33. It reads the head
once a block, in the rare steps that need it."""


@jax.named_scope("sample")
def draw(
    settings: StepSettings,
    params: Params,
    heads: Heads,
    hidden: Float[Array, "T D"],
    slots: SlotState,
    drafts: Drafts | None = None,
) -> tuple[Int32[Array, "R"], Bool[Array, "R"], DeviceLogprobs]:
    """(tokens, is_bad, log-probabilities) of the sampled positions; zeros, at no cost, when no row samples.

    drafts: of a verify bucket, if the engine has a rule by which they are accepted.
    """

    def sample(
        slots: SlotState, raw: jax.Array, sampling: SamplingBatch, positions: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return sample_tokens(mask_padding(raw, settings.model.config.vocab_size), sampling, positions, slots)

    def drawn() -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        raw = _raw_logits(settings, params, heads.samples, hidden[heads.tokens])
        rows = (raw, heads.sampling, heads.positions)
        tokens, is_bad, processed = _of_rows(settings, sample, heads.samples, rows, slots)
        if drafts is not None and settings.acceptance is not None:

            def of_rows(function: Callable[..., Any], rows: tuple[Any, ...]) -> Any:
                def alone(_: None, *rows: Any) -> Any:
                    return function(*rows)

                return _of_rows(settings, alone, heads.samples, rows, None)

            chosen_from = processed, heads.sampling, heads.positions
            tokens = settings.acceptance.choose(of_rows, *chosen_from, drafts, tokens)
        num_wanted = jnp.where(heads.samples, heads.sampling.num_logprobs, -1)
        # Raw logits that are needed later would be copied in each step, 33 MB for 64 rows of Llama 3; so they are
        # computed again where processors have changed those of a row that wants log-probabilities. Two steps, not two
        # branches of one: those would keep the memory of the processed logits while the raw ones are computed.
        is_changed = jnp.any(heads.sampling.has_processor & (num_wanted >= 0))
        unchanged = (processed, tokens, jnp.where(is_changed, -1, num_wanted))
        logprobs = _score(settings, processed.shape[1], unchanged)
        logprobs = lax.cond(
            is_changed,
            lambda: _score_blocks(settings, params, hidden, (heads.tokens, tokens, num_wanted)),
            lambda: logprobs,
        )
        return tokens, is_bad, logprobs

    def nothing() -> tuple[jax.Array, jax.Array, DeviceLogprobs]:
        size = len(heads.samples)
        return jnp.zeros(size, jnp.int32), jnp.zeros(size, jnp.bool_), no_logprobs(size, settings.max_logprobs)

    return lax.cond(jnp.any(heads.samples), drawn, nothing)


def score_states(
    settings: StepSettings,
    params: Params,
    hidden: Float[Array, "R D"],
    targets: Int32[Array, "R"],
    num_wanted: Int32[Array, "R"],
) -> DeviceLogprobs:
    """`top_logprobs` of targets after hidden states; num_wanted: candidates of each row, -1: none wants anything."""
    raw = _raw_logits(settings, params, num_wanted >= 0, hidden)
    return _score(settings, settings.model.config.vocab_size, (raw, targets, num_wanted))


def _score_blocks(
    settings: StepSettings, params: Params, hidden: Float[Array, "T D"], rows: tuple[jax.Array, jax.Array, jax.Array]
) -> DeviceLogprobs:
    """`score_states` of `BLOCK_ROWS` rows at a time. rows: indices of hidden states, targets, candidates wanted."""

    def score(block: tuple[jax.Array, ...]) -> DeviceLogprobs:
        # Without the barrier XLA for GPUs fuses the block's slice into the product, which then has 34 MB of workspace.
        tokens, targets, num_wanted = lax.optimization_barrier(block)
        return score_states(settings, params, hidden[tokens], targets, num_wanted)

    if settings.tiles is not None:
        return score(rows)
    num_rows = len(rows[0])
    size = math.gcd(num_rows, BLOCK_ROWS)

    def split(a: jax.Array) -> jax.Array:
        return a.reshape(num_rows // size, size, *a.shape[1:])

    def join(a: jax.Array) -> jax.Array:
        return a.reshape(num_rows, *a.shape[2:])

    if settings.model.mesh.devices.flat[0].platform != "gpu":
        return jax.tree.map(join, lax.map(score, jax.tree.map(split, rows)))

    # On a GPU gathered and scattered: a CUDA graph cannot hold the copies that slices become (jaxlib 0.11.2). Several
    # TPUs would exchange more.
    def add_block(block: jax.Array, found: DeviceLogprobs) -> DeviceLogprobs:
        own = block * size + jnp.arange(size)
        scored = score(tuple(array[own] for array in rows))
        chosen, ranks, top_ids, top = (array.at[own].set(new) for array, new in zip(found, scored, strict=True))
        return chosen, ranks, top_ids, top

    return lax.fori_loop(0, num_rows // size, add_block, no_logprobs(num_rows, settings.max_logprobs))


def _score(settings: StepSettings, vocab_size: int, rows: tuple[jax.Array, ...]) -> DeviceLogprobs:
    """rows: raw logits, of which those from vocab_size on are yet to be masked; targets; candidates wanted."""

    def score(_: None, raw: jax.Array, targets: jax.Array, num_wanted: jax.Array) -> DeviceLogprobs:
        return top_logprobs(mask_padding(raw, vocab_size), targets, num_wanted, k=settings.max_logprobs)

    return _of_rows(settings, score, rows[-1] >= 0, rows, None)


def _raw_logits(
    settings: StepSettings, params: Params, is_wanted: Bool[Array, "R"], hidden: Float[Array, "R D"]
) -> Float[Array, "R V"]:
    head = partial(logits, settings.context, settings.model.config, params)
    return each_tile(settings.tiles, is_wanted, head, hidden)


def _of_rows(
    settings: StepSettings, function: Callable[..., Any], is_used: Bool[Array, "R"], rows: tuple[Any, ...], shared: Any
) -> Any:
    """function(shared, *rows), with the rows divided over the devices and, in a batch-invariant engine, by tiles."""

    def of_share(rows: tuple[Any, ...], shared: Any) -> Any:
        is_used, *rest = rows
        return each_tile(settings.tiles, is_used, partial(function, shared), *rest)

    return shard_rows(settings.model.mesh, of_share, (is_used, *rows), shared)
