"""Device: what a proposer reads of the target's forward passes (`Proposer.tap_layers`).

A decode step gathers it in all its rounds and has it read afterwards, at once: no round drafts, and the proposer's
weights are read once a step. In every round, an EAGLE-3 draft made decoding of SmolLM2 on CPU 3 % slower.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState, features_before
from jaxserve.runner.drafts.proposer import TappedTokens
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import DeviceBatch
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import replicate


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
    """Of all rounds of a decode bucket before the first: zeros. None: nothing is tapped."""
    num_taps = 0 if settings.proposer is None else len(settings.proposer.tap_layers)
    if num_taps == 0:
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


def of_all_rounds(rounds: RoundTaps | None, before: Float[Array, "S F"] | None) -> TappedTokens | None:
    """The tokens of all rounds, those of a row one after the other: the order in which KV is written."""
    if rounds is None or before is None:
        return None
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
