"""Device: the state after rows have advanced by accepted drafts and by the token that was drawn after them."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.acceptance import Accepted
from jaxserve.runner.drafts.compact_path import compact_path
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import keep_sharding
from jaxserve.runner.step.verify_loop import DrawnNodes
from jaxserve.sampling.penalty_counts import update_counts
from jaxserve.sampling.sampling_batch import SamplingBatch


class AdvancedRows(NamedTuple):
    """Rows of W nodes. starts: the position of each row's own token. tokens: those after it by position, of which
    `Accepted.num_tokens` count. is_active: the others stay as they are."""

    slots: Int32[Array, "S"]
    sampling: SamplingBatch
    starts: Int32[Array, "S"]
    tokens: Int32[Array, "S W"]
    is_active: Bool[Array, "S"]


def advance_rows(
    settings: StepSettings, state: DeviceState, rows: AdvancedRows, accepted: Accepted, drawn: DrawnNodes
) -> DeviceState:
    """Lengths, last tokens, history and counts of the rows, and what is kept of their last nodes."""
    slots, sampling, starts, tokens, is_active = rows
    width = tokens.shape[1]
    index = jnp.arange(width, dtype=jnp.int32)[None]
    positions = starts[:, None] + 1 + index
    is_draft = (index + 1 < accepted.num_tokens[:, None]) & is_active[:, None]  # what was drawn last is read later
    assert state.history is not None
    scratch, row = len(state.history) - 1, jnp.arange(len(slots), dtype=jnp.int32)[:, None]
    history = state.history.at[jnp.where(is_draft, slots[:, None], scratch), positions].set(tokens)
    counts = update_counts(
        state.slots.counts,
        sampling,
        tokens=tokens.reshape(-1),
        token_rows=jnp.where(is_draft, row, len(slots)).reshape(-1),
        positions=positions.reshape(-1),
        resets=None,
    )
    if accepted.nodes is not None:
        assert drawn.slots is not None
        mesh, page_layout = settings.model.mesh, settings.model.page_layout
        kept = jnp.where(is_active, accepted.num_tokens, 0)
        state = replace(state, kv=compact_path(mesh, page_layout, state.kv, drawn.slots, accepted.nodes, kept))
    last, lengths = state.last_tokens[slots], state.lengths[slots]
    last_node = (accepted.num_tokens - 1)[:, None]
    if accepted.nodes is not None:
        last_node = jnp.take_along_axis(accepted.nodes, last_node, axis=1)

    def at_last_node(kept: jax.Array | None, of_nodes: jax.Array | None) -> jax.Array | None:
        if kept is None or of_nodes is None:
            return None
        found = jnp.take_along_axis(of_nodes, last_node[:, :, None], axis=1)[:, 0]
        return kept.at[slots].set(jnp.where(is_active[:, None], found, kept[slots]))

    state = replace(
        state,
        slots=replace(state.slots, counts=counts),
        history=history,
        last_tokens=state.last_tokens.at[slots].set(jnp.where(is_active, accepted.last, last)),
        lengths=state.lengths.at[slots].set(jnp.where(is_active, starts + accepted.num_tokens, lengths)),
        last_hidden=at_last_node(state.last_hidden, drawn.hidden),
        features=at_last_node(state.features, drawn.features),
    )
    return keep_sharding(settings, state)
