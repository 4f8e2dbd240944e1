"""Device: `DeviceState`, the arrays kept on the device between steps; donated to each program and returned."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, no_type_check

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int32

from jaxserve.core.hardware.mesh import replicated
from jaxserve.kv.kv_state import KVState
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.sampling.slot_state import SlotState, init_slot_state

MAX_EDITS = 1024  # capacity of a slot: 300 biases, and room for stop ids and bad words


@no_type_check
@struct.dataclass
class DeviceState:
    """Slots are rows; the last row is the scratch slot of padding rows."""

    kv: KVState
    last_tokens: Int32[Array, "slots"]  # the token each slot drew last
    lengths: Int32[Array, "slots"]  # KV positions each slot has written
    slots: SlotState
    last_hidden: Float[Array, "slots D"]  # after the last token that each slot has read: late rows draw from it
    history: Int32[Array, "slots H"] | None = None  # each slot's tokens by position, for drafts; None: no drafts
    earlier: Int32[Array, "2 E"] | None = None  # tokens of ended sequences and their owners (`EarlierOutputs`)
    features: Float[Array, "slots F"] | None = None  # of that token, for drafts (`Proposer.num_features`); None: none
    adapters: Int32[Array, "A B G n"] | None = None  # pages of each place (`LoraBatch.tables`); None: there are none
    draft_lens: Int32[Array, "slots"] | None = None  # positions whose KV the draft model has; None: there is no such


@dataclass(frozen=True, slots=True)
class SlotSizes:
    """Sizes of the state of all slots. vocab_width: of the vocabulary on the device. d_model, dtype: of hidden states.
    history_len: positions of the history; 0: there is none. has_draft_model: it keeps KV of its own.
    num_earlier_tokens: of ended sequences; 0: none are kept. num_features: of a token, for drafts.
    num_draft_masks: of drafts of late rows, in addition to those of slots. adapters: shape of the table of their pages;
    None: there are none."""

    num_slots: int
    vocab_width: int
    d_model: int
    dtype: Any
    history_len: int = 0
    has_draft_model: bool = False
    num_earlier_tokens: int = 0
    num_features: int = 0
    num_draft_masks: int = 0
    adapters: tuple[int, int, int, int] | None = None


def init_state(layout: KVLayout, num_pages: int, sizes: SlotSizes, mesh: Mesh) -> DeviceState:
    """An empty state: KV of zeros, all slots free."""
    make = cast(Callable[[], DeviceState], jax.jit(partial(init_slots, sizes), out_shardings=replicated(mesh)))
    return replace(make(), kv=layout.allocate(num_pages, mesh))


def init_slots(sizes: SlotSizes) -> DeviceState:
    """The state of all slots, free, without any KV."""
    rows = sizes.num_slots + 1
    return DeviceState(
        kv=cast(Any, None),
        last_tokens=jnp.zeros(rows, jnp.int32),
        lengths=jnp.zeros(rows, jnp.int32),
        slots=init_slot_state(sizes.num_slots, sizes.vocab_width, MAX_EDITS, sizes.num_draft_masks),
        last_hidden=jnp.zeros((rows, sizes.d_model), sizes.dtype),
        history=jnp.zeros((rows, sizes.history_len), jnp.int32) if sizes.history_len else None,
        earlier=jnp.full((2, sizes.num_earlier_tokens), -1, jnp.int32) if sizes.num_earlier_tokens else None,
        features=jnp.zeros((rows, sizes.num_features), sizes.dtype) if sizes.num_features else None,
        adapters=None if sizes.adapters is None else jnp.zeros(sizes.adapters, jnp.int32),
        draft_lens=jnp.zeros(rows, jnp.int32) if sizes.has_draft_model else None,
    )


def features_before(state: DeviceState, slots: Int32[Array, "S"], starts: Int32[Array, "S"]) -> Float[Array, "S F"]:
    """Of the token before each of these positions, if it is the last one that the slot has read; else zeros."""
    assert state.features is not None
    is_known = (starts > 0) & (state.lengths[slots] == starts)
    return jnp.where(is_known[:, None], state.features[slots], 0)


def slot_bytes(sizes: SlotSizes) -> int:
    """Bytes of the state of all slots on one device."""
    shapes = jax.eval_shape(partial(init_slots, sizes))
    leaves: list[jax.ShapeDtypeStruct] = jax.tree.leaves(shapes)
    return sum(a.size * a.dtype.itemsize for a in leaves)
