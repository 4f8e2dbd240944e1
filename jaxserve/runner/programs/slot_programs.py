"""Device: programs that change slots: copies of forks, logit edits, masks, counts, tokens for drafts."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from jaxserve.runner.device_state import MAX_EDITS, DeviceState
from jaxserve.runner.programs.engine_shapes import EngineShapes
from jaxserve.runner.programs.program import Program
from jaxserve.runner.step.step import fork as copy_forks
from jaxserve.sampling import penalty_counts, slot_state

# In one call; longer lists take several calls.
FORK_PAGES, FORK_SLOTS = 64, 16
EDIT_SLOTS = 8
PREFIX_SLOTS = 4  # a line of counts has 256 KB for Llama 3
EARLIER_TOKENS = 1024


def fork(shapes: EngineShapes) -> Program:
    """(state, pages and slots to copy) -> state."""
    pages, slots = shapes.whole((FORK_PAGES,), jnp.int32), shapes.whole((FORK_SLOTS,), jnp.int32)
    return shapes.update("fork", partial(copy_forks, shapes.settings.model.mesh), pages, pages, slots, slots)


def set_edits(shapes: EngineShapes) -> Program:
    """(state, slots, ids, bias, until) -> state."""

    def function(
        state: DeviceState, slots: jax.Array, ids: jax.Array, bias: jax.Array, until: jax.Array
    ) -> DeviceState:
        return replace(state, slots=slot_state.set_edits(state.slots, slots, ids, bias, until))

    columns = [shapes.whole((EDIT_SLOTS, MAX_EDITS), dtype) for dtype in (jnp.int32, jnp.float32, jnp.int32)]
    return shapes.update("set_edits", function, shapes.whole((EDIT_SLOTS,), jnp.int32), *columns)


def set_masks(shapes: EngineShapes, num_rows: int) -> Program:
    """(state, mask rows, mask words) -> state."""

    def function(state: DeviceState, rows: jax.Array, masks: jax.Array) -> DeviceState:
        return replace(state, slots=slot_state.set_mask(state.slots, rows, masks))

    words = shapes.whole((num_rows, -(-shapes.vocab // 32)), jnp.uint32)
    return shapes.update(f"set_masks[rows={num_rows}]", function, shapes.whole((num_rows,), jnp.int32), words)


def set_counts(shapes: EngineShapes) -> Program:
    """(state, slots, results of `count_tokens`) -> state."""

    def function(state: DeviceState, slots: jax.Array, lines: jax.Array) -> DeviceState:
        counts = penalty_counts.set_counts(state.slots.counts, slots, lines)
        return replace(state, slots=replace(state.slots, counts=counts))

    lines = shapes.whole((PREFIX_SLOTS, shapes.vocab), jnp.int16)
    return shapes.update("set_counts", function, shapes.whole((PREFIX_SLOTS,), jnp.int32), lines)


def set_history(shapes: EngineShapes) -> Program:
    """(state, slots, their first tokens, how many) -> state. A draft model has KV of them in the same pages."""

    def function(state: DeviceState, slots: jax.Array, tokens: jax.Array, lens: jax.Array) -> DeviceState:
        assert state.history is not None
        draft_lens = None if state.draft_lens is None else state.draft_lens.at[slots].set(lens)
        return replace(state, history=state.history.at[slots].set(tokens), draft_lens=draft_lens)

    column = shapes.whole((PREFIX_SLOTS,), jnp.int32)
    tokens = shapes.whole((PREFIX_SLOTS, shapes.history_len), jnp.int32)
    return shapes.update("set_history", function, column, tokens, column)


def keep_earlier(shapes: EngineShapes) -> Program:
    """(state, places in the ring of earlier tokens, tokens, their owners) -> state."""

    def function(state: DeviceState, places: jax.Array, tokens: jax.Array, owners: jax.Array) -> DeviceState:
        assert state.earlier is not None
        new = jnp.stack([tokens, owners])
        return replace(state, earlier=state.earlier.at[:, places].set(new, mode="drop"))

    column = shapes.whole((EARLIER_TOKENS,), jnp.int32)
    return shapes.update("keep_earlier", function, column, column, column)
