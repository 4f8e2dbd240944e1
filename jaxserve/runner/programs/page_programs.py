"""Device: programs that copy pages: within the pool, to host memory and from there."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxserve.kv.kv_state import KVState
from jaxserve.kv.page_copies import gather_pages, scatter_pages
from jaxserve.runner import sink_copies
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.host_pages import TRANSFER_PAGES
from jaxserve.runner.programs.engine_shapes import EngineShapes
from jaxserve.runner.programs.program import Program
from jaxserve.runner.sink_copies import MAX_COPIES, SinkCopies


def copy_sinks(shapes: EngineShapes) -> Program:
    """(state, copies of each kind of layers with full attention) -> state."""
    model, num_sinks = shapes.settings.model, shapes.num_sinks or 0
    full = [kind.attention for kind in model.config.kinds if kind.attention.window is None]

    def function(state: DeviceState, copies: tuple[SinkCopies, ...]) -> DeviceState:
        kinds = list(zip(full, copies, strict=True))
        return replace(state, kv=sink_copies.copy_sinks(model.mesh, shapes.layout.pages, num_sinks, kinds, state.kv))

    column: Any = shapes.whole((MAX_COPIES,), jnp.int32)
    return shapes.update("copy_sinks", function, (SinkCopies(*[column] * 4),) * len(full))


def load_adapter(shapes: EngineShapes) -> Program:
    """(state, pages, their content, place, its table) -> state."""
    shape, model = shapes.adapter_table, shapes.settings.model
    assert shape is not None

    def function(
        state: DeviceState, ids: jax.Array, content: jax.Array, place: jax.Array, table: jax.Array
    ) -> DeviceState:
        assert state.adapters is not None
        pool = scatter_pages(model.mesh, KVState(state.kv.pool), ids, KVState(content)).pool
        kv = replace(state.kv, pool=pool)
        return replace(state, kv=kv, adapters=state.adapters.at[place].set(table))

    content = shapes.layout.arrays(TRANSFER_PAGES, shapes.layout.sharding(model.mesh)).pool
    ids, place = shapes.whole((TRANSFER_PAGES,), jnp.int32), shapes.whole((), jnp.int32)
    return shapes.update("load_adapter", function, ids, content, place, shapes.whole(shape[1:], jnp.int32))


def save_pages(shapes: EngineShapes) -> Program:
    """(state, pages) -> (state, their content in host memory)."""

    def function(state: DeviceState, ids: jax.Array) -> tuple[DeviceState, KVState]:
        return state, gather_pages(shapes.settings.model.mesh, state.kv, ids)

    ids = shapes.whole((TRANSFER_PAGES,), jnp.int32)
    rest = (shapes.layout.host_sharding(shapes.settings.model.mesh),)
    return shapes.program("save_pages", function, (shapes.state, ids), state=0, rest=rest)


def load_pages(shapes: EngineShapes) -> Program:
    """(state, pages, their content) -> state."""

    def function(state: DeviceState, ids: jax.Array, pages: KVState) -> DeviceState:
        return replace(state, kv=scatter_pages(shapes.settings.model.mesh, state.kv, ids, pages))

    pages = shapes.layout.arrays(TRANSFER_PAGES, shapes.layout.sharding(shapes.settings.model.mesh))
    return shapes.update("load_pages", function, shapes.whole((TRANSFER_PAGES,), jnp.int32), pages)
