"""Device: `DeviceState`, the arrays kept on the device between steps; donated to each program and returned."""

from collections.abc import Callable
from typing import cast, no_type_check

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Int32

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
    history: Int32[Array, "slots H"] | None = None  # each slot's tokens by position, for drafts; None: no drafts


def init_state(
    layout: KVLayout, num_pages: int, num_slots: int, vocab_width: int, mesh: Mesh, history_len: int = 0
) -> DeviceState:
    """An empty state: KV of zeros, all slots free. history_len: positions of the history; 0: there is none."""

    def rest() -> tuple[jax.Array, jax.Array, SlotState, jax.Array | None]:
        zeros = jnp.zeros(num_slots + 1, jnp.int32)
        history = jnp.zeros((num_slots + 1, history_len), jnp.int32) if history_len else None
        return zeros, zeros + 0, init_slots(num_slots, vocab_width), history

    make = cast(
        Callable[[], tuple[jax.Array, jax.Array, SlotState, jax.Array | None]],
        jax.jit(rest, out_shardings=replicated(mesh)),
    )
    return DeviceState(layout.allocate(num_pages, mesh), *make())


def init_slots(num_slots: int, vocab_width: int) -> SlotState:
    """The empty sampling state of all slots."""
    return init_slot_state(num_slots, vocab_width, MAX_EDITS)


def slot_bytes(num_slots: int, vocab_width: int) -> int:
    """Bytes of the sampling state on one device: penalty counts, mask rows and edits."""
    shapes = jax.eval_shape(lambda: init_slots(num_slots, vocab_width))
    leaves: list[jax.ShapeDtypeStruct] = jax.tree.leaves(shapes)
    return sum(a.size * a.dtype.itemsize for a in leaves)
