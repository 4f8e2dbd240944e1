"""Device: what a proposer reads of the target's forward passes (`Proposer.tap_layers`).

On CPU a decode step gathers it in all its rounds and has it read afterwards, at once: no round drafts, and the
proposer's weights are read once a step. In every round, an EAGLE-3 draft made decoding of SmolLM2 3 % slower. On TPU
and GPU every round reads its own: a hundredth of its bytes for Llama 3 8B, and XLA for v6e copies weights that are
used under a condition.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState, features_before
from jaxserve.runner.drafts.proposer import TappedTokens
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import DeviceBatch
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import replicate

READ_ROUNDS = (1, 4)
"""Of a step with so many rounds at most no more tokens are read: most steps of many rows have one round."""


class RoundTaps(NamedTuple):
    """Fields of `TappedTokens`, of one decode round or, with an axis more before them, of all R rounds."""

    taps: Float[Array, "*R A S D"]
    tokens: Int32[Array, "*R S"]
    positions: Int32[Array, "*R S"]
    write_slots: tuple[Int32[Array, "*R G S"], ...]


def tapped_tokens(
    settings: StepSettings,
    state: DeviceState,
    batch: DeviceBatch,
    taps: Float[Array, "A T D"],
    is_read: Bool[Array, "T"],
    previous: Int32[Array, "T"] | None,
) -> TappedTokens:
    """Those of one pass. state: before it. previous: as in `TappedTokens`; None: tokens follow each other."""
    meta, token = batch.metas[0], jnp.arange(len(batch.tokens), dtype=jnp.int32)
    if previous is None:
        previous = jnp.where(token == meta.cu_q_lens[batch.token_rows], -1, token - 1)
    scratch = token % settings.model.page_size
    return TappedTokens(
        taps,
        batch.tokens,
        batch.positions,
        previous,
        batch.token_rows,
        features_before(state, batch.slots, batch.starts),
        tuple(jnp.where(is_read[None], meta.write_slots, scratch[None]) for meta in batch.metas),
        meta.cu_q_lens[meta.num_seqs],
    )


def read_tapped(
    settings: StepSettings, params: Params, state: DeviceState, tapped: TappedTokens | None
) -> tuple[DeviceState, Float[Array, "T F"] | None]:
    """The state after the proposer has read the tokens, and their features; None: nothing is tapped."""
    if tapped is None:
        return state, None
    assert settings.proposer is not None
    return settings.proposer.read_taps(params, state, tapped)


def with_features(
    settings: StepSettings,
    state: DeviceState,
    features: Float[Array, "T F"] | None,
    last: Int32[Array, "S"],
    slots: Int32[Array, "S"],
) -> DeviceState:
    """The state with the features of these tokens, the last ones that their slots have read. slots: -1: scratch."""
    if features is None:
        return state
    assert state.features is not None
    return replace(state, features=state.features.at[slots].set(replicate(settings, features[last])))


def no_taps(settings: StepSettings, layout: BatchLayout) -> RoundTaps | None:
    """Of all rounds of a decode bucket before the first: zeros. None: nothing is tapped, or rounds read their own."""
    num_taps = 0 if settings.proposer is None else len(settings.proposer.tap_layers)
    if num_taps == 0 or settings.model.mesh.devices.flat[0].platform != "cpu":
        return None
    rounds, rows, model = layout.bucket.max_rounds, layout.bucket.num_rows, settings.model
    return RoundTaps(
        jnp.zeros((rounds, num_taps, rows, model.config.d_model), model.dtype),
        jnp.zeros((rounds, rows), jnp.int32),
        jnp.zeros((rounds, rows), jnp.int32),
        tuple(jnp.zeros((rounds, end - start, rows), jnp.int32) for start, end in layout.kinds),
    )


def of_round(tapped: TappedTokens | None) -> RoundTaps | None:
    """What is kept of a decode round."""
    return None if tapped is None else RoundTaps(tapped.taps, tapped.tokens, tapped.positions, tapped.write_slots)


def read_rounds(
    settings: StepSettings,
    params: Params,
    state: DeviceState,
    taps: RoundTaps,
    before: Float[Array, "S F"],
    counts: tuple[Int32[Array, ""], Int32[Array, "S"]],
    slots: Int32[Array, "S"],
) -> DeviceState:
    """The state after the proposer has read the tokens of all rounds. before: as of `TappedTokens`. counts: the rounds
    that ran, and how many of them each row took part in."""
    num_rounds, num_read = counts
    sizes = [size for size in READ_ROUNDS if size < len(taps.tokens)] + [len(taps.tokens)]

    def first_rounds(size: int) -> RoundTaps:
        write_slots = tuple(table[:size] for table in taps.write_slots)
        return RoundTaps(taps.taps[:size], taps.tokens[:size], taps.positions[:size], write_slots)

    def read(size: int) -> tuple[dict[str, jax.Array], jax.Array | None]:
        # XLA would make the exchange of axes a part of the product, which is ten times as slow on CPU.
        tapped = lax.optimization_barrier(_of_all_rounds(first_rounds(size), before))
        after, features = read_tapped(settings, params, state, tapped)
        last = jnp.arange(len(slots), dtype=jnp.int32) * size + jnp.maximum(num_read - 1, 0)
        after = with_features(settings, after, features, last, jnp.where(num_read > 0, slots, -1))
        return after.kv.extra, after.features

    which = sum((num_rounds > size).astype(jnp.int32) for size in sizes[:-1])
    extra, features = lax.switch(which, [partial(read, size) for size in sizes])
    return replace(state, kv=replace(state.kv, extra=extra), features=features)


def _of_all_rounds(rounds: RoundTaps, before: Float[Array, "S F"]) -> TappedTokens:
    """The tokens of all rounds, those of a row one after the other: the order in which KV is written."""
    num_rounds, num_rows = rounds.tokens.shape

    def by_row(column: jax.Array) -> jax.Array:
        """From [R, …, S] to [S·R]."""
        return jnp.moveaxis(column, 0, -1).reshape(*column.shape[1:-1], num_rows * num_rounds)

    token = jnp.arange(num_rows * num_rounds, dtype=jnp.int32)
    taps = jnp.moveaxis(rounds.taps, 0, 2)
    return TappedTokens(
        taps.reshape(len(taps), num_rows * num_rounds, -1),
        by_row(rounds.tokens),
        by_row(rounds.positions),
        jnp.where(token % num_rounds == 0, -1, token - 1),
        token // num_rounds,
        before,
        tuple(map(by_row, rounds.write_slots)),
        jnp.int32(num_rows * num_rounds),
    )
