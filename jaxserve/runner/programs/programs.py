"""Device: `Programs`, the programs of an engine as functions and argument shapes. Nothing is allocated, and the mesh
may be an AOT mesh, built from a topology description."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from jaxserve.core.buckets import Bucket, ladder
from jaxserve.core.hardware.mesh import replicated
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import ROW_FIELDS
from jaxserve.kv.kv_state import KVState
from jaxserve.kv.page_copies import gather_pages, scatter_pages
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, declare, has_tuples_on, targets, vocab_width, with_draft
from jaxserve.runner.device_state import MAX_EDITS, DeviceState, SlotSizes, init_slots
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.runner.host_pages import TRANSFER_PAGES
from jaxserve.runner.programs.compiler_options import compiler_options
from jaxserve.runner.programs.stored_layouts import stored
from jaxserve.runner.sink_copies import MAX_COPIES, SinkCopies, copy_sinks
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.late_draw import draw_late
from jaxserve.runner.step.late_nodes import draw_nodes
from jaxserve.runner.step.step import fork, step
from jaxserve.runner.step.step_output import LateNodes
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.sampling.penalty_counts import set_counts
from jaxserve.sampling.slot_state import set_edits, set_mask

# In one call; longer lists take several calls.
FORK_PAGES, FORK_SLOTS = 64, 16
EDIT_SLOTS = 8
DRAW_ROWS = 8  # of the smallest `draw`
PREFIX_SLOTS = 4  # a line of counts has 256 KB for Llama 3
EARLIER_TOKENS = 1024


def step_name(bucket: Bucket, *, has_adapters: bool) -> str:
    """The name of a step's program."""
    return f"{bucket}+adapters" if has_adapters else str(bucket)


@dataclass(frozen=True, slots=True)
class Program:
    """A function and the shapes of its arguments; the argument at index `state` is donated and returned first.

    bucket: of a step; None of other programs.
    """

    name: str
    mesh: Mesh
    function: Callable[..., Any]
    args: tuple[Any, ...]
    state: int
    out_shardings: Any
    bucket: Bucket | None = None

    @property
    def jitted(self) -> Any:
        options = compiler_options(self.mesh)
        return jax.jit(
            self.function, donate_argnums=(self.state,), out_shardings=self.out_shardings, compiler_options=options
        )

    def lower(self) -> jax.stages.Lowered:
        with jax.set_mesh(self.mesh):  # kernels read the target device from the mesh
            return self.jitted.lower(*self.args)

    def compile(self) -> jax.stages.Compiled:
        return self.lower().compile()


@dataclass(frozen=True)
class Programs:
    """The settings and sizes of an engine; num_pages includes the scratch page, num_slots excludes the scratch slot.

    has_host_tier: pages are copied to host memory and back. history_len: positions of the tokens that are kept for
    drafts; 0: none are. num_earlier_tokens: of ended sequences, kept for drafts. num_sinks: of streaming sequences;
    None: there are none. num_draft_masks: masks that drafts of late rows may need at once (`Buckets.most_drafts`).
    """

    settings: StepSettings
    num_pages: int
    num_slots: int
    has_host_tier: bool = False
    history_len: int = 0
    num_earlier_tokens: int = 0
    num_sinks: int | None = None
    num_draft_masks: int = 0
    traces: Counter[str] = field(default_factory=Counter[str])
    """How often the Python of each program was traced."""

    @cached_property
    def layout(self) -> KVLayout:
        """Shape, dtype and sharding of the KV pool and the arrays beside it."""
        return self.settings.model.layout

    @cached_property
    def groups(self) -> KVGroups:
        return self.settings.model.groups

    @cached_property
    def param_specs(self) -> Params:
        """The declared weights of the model."""
        model = self.settings.model
        has_tuples = has_tuples_on(model.mesh)
        return declare(model.config, model.mesh, model.dtype, has_tuples=has_tuples, packing=model.packing)

    @cached_property
    def draft_specs(self) -> Params | None:
        """Those of the proposer, if it has such."""
        proposer = self.settings.proposer
        return None if proposer is None else proposer.weights

    @cached_property
    def params(self) -> Params:
        """Shape, dtype, sharding and layout of each weight of the model."""
        return self._stored(self.param_specs)

    @cached_property
    def draft_params(self) -> Params | None:
        """Those of the proposer, if it has such."""
        return None if self.draft_specs is None else self._stored(self.draft_specs)

    @cached_property
    def weights(self) -> Params:
        """All weights, as steps take them."""
        return with_draft(self.params, self.draft_params)

    @property
    def draft_model(self) -> Settings | None:
        """The model that drafts, if it is another one."""
        parts = () if self.settings.proposer is None else self.settings.proposer.parts
        return next((part.model for part in parts if isinstance(part, DraftModel)), None)

    @cached_property
    def state(self) -> Any:
        """The shape, dtype and sharding of each array of `DeviceState`."""
        kv = self.layout.arrays(self.num_pages, self.layout.sharding(self.settings.model.mesh))

        def replicate(array: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return self._whole(array.shape, array.dtype)

        slots = jax.eval_shape(partial(init_slots, self.slot_sizes))
        return replace(jax.tree.map(replicate, slots), kv=kv)

    @property
    def slot_sizes(self) -> SlotSizes:
        model = self.settings.model
        return SlotSizes(
            self.num_slots,
            self.vocab,
            model.config.d_model,
            model.dtype,
            self.history_len,
            self.draft_model is not None,
            self.num_earlier_tokens,
            0 if self.settings.proposer is None else self.settings.proposer.num_features,
            self.num_draft_masks,
            self.adapter_table,
        )

    @property
    def adapter_table(self) -> tuple[int, int, int, int] | None:
        """Shape of the table of the adapters' pages, that of no adapter first; None: there are none."""
        layout = self.settings.adapters
        if layout is None:
            return None
        return (1 + layout.num_places, layout.max_blocks, self.groups.num_groups, layout.num_pages)

    @cached_property
    def vocab(self) -> int:
        """Width of the vocabulary on the device, including padding."""
        return vocab_width(self.settings.model.config, self.settings.model.mesh)

    def batch_layout(self, bucket: Bucket) -> BatchLayout:
        has_drops = self.num_sinks is not None
        return BatchLayout(bucket, self.groups, self.settings.model.config.group_ranges, has_drops)

    def step(self, bucket: Bucket, *, has_adapters: bool = False) -> Program:
        """(weights, state, buffer) -> (state, output, `ExtraOutputs`).

        has_adapters: of rows with and without. Other batches have a program of their own: a condition in one program
        would hold the layers twice as well, and a GPU's host would wait for it in each step.
        """
        layout = replace(self.batch_layout(bucket), has_adapters=has_adapters)
        whole = replicated(self.settings.model.mesh)
        args = (self.weights, self.state, self._whole((layout.size,), jnp.int32))
        name = step_name(bucket, has_adapters=has_adapters)
        program = self._program(name, partial(step, self.settings, layout), args, state=1, rest=(whole, whole))
        return replace(program, bucket=bucket)

    def draw(self, num_rows: int) -> Program:
        """(weights, state, rows) -> (state, output, log-probabilities): `draw_late` of up to `num_rows` rows."""
        whole = replicated(self.settings.model.mesh)
        args = (self.weights, self.state, self._whole((num_rows, len(ROW_FIELDS)), jnp.int32))
        name = f"draw[rows={num_rows}]"
        return self._program(name, partial(draw_late, self.settings), args, state=1, rest=(whole, whole))

    def draw_nodes(self, bucket: Bucket) -> Program:
        """(weights, state, nodes, table) -> (state, output, log-probabilities): `draw_nodes` of a verify bucket."""
        model, num_rows, width = self.settings.model, bucket.num_rows, 1 + bucket.max_drafts
        whole = replicated(model.mesh)
        hidden = self._whole((num_rows, width, model.config.d_model), model.dtype)
        drafts, num = (self._whole(shape, jnp.int32) for shape in ((num_rows, width - 1), (num_rows,)))
        table = self._whole((num_rows, len(ROW_FIELDS) + width), jnp.int32)
        args = (self.weights, self.state, LateNodes(*cast(Any, (hidden, drafts, num))), table)
        return self._program(f"draw_{bucket}", partial(draw_nodes, self.settings), args, state=1, rest=(whole, whole))

    def fork(self) -> Program:
        """(state, pages and slots to copy) -> state."""
        pages, slots = self._whole((FORK_PAGES,), jnp.int32), self._whole((FORK_SLOTS,), jnp.int32)
        return self._update("fork", partial(fork, self.settings.model.mesh), pages, pages, slots, slots)

    def set_edits(self) -> Program:
        """(state, slots, ids, bias, until) -> state."""

        def function(
            state: DeviceState, slots: jax.Array, ids: jax.Array, bias: jax.Array, until: jax.Array
        ) -> DeviceState:
            return replace(state, slots=set_edits(state.slots, slots, ids, bias, until))

        columns = [self._whole((EDIT_SLOTS, MAX_EDITS), dtype) for dtype in (jnp.int32, jnp.float32, jnp.int32)]
        return self._update("set_edits", function, self._whole((EDIT_SLOTS,), jnp.int32), *columns)

    def set_masks(self, num_rows: int) -> Program:
        """(state, mask rows, mask words) -> state."""

        def function(state: DeviceState, rows: jax.Array, masks: jax.Array) -> DeviceState:
            return replace(state, slots=set_mask(state.slots, rows, masks))

        words = self._whole((num_rows, -(-self.vocab // 32)), jnp.uint32)
        return self._update(f"set_masks[rows={num_rows}]", function, self._whole((num_rows,), jnp.int32), words)

    def set_counts(self) -> Program:
        """(state, slots, results of `count_tokens`) -> state."""

        def function(state: DeviceState, slots: jax.Array, lines: jax.Array) -> DeviceState:
            return replace(state, slots=replace(state.slots, counts=set_counts(state.slots.counts, slots, lines)))

        lines = self._whole((PREFIX_SLOTS, self.vocab), jnp.int16)
        return self._update("set_counts", function, self._whole((PREFIX_SLOTS,), jnp.int32), lines)

    def set_history(self) -> Program:
        """(state, slots, their first tokens, how many) -> state. A draft model has KV of them in the same pages."""

        def function(state: DeviceState, slots: jax.Array, tokens: jax.Array, lens: jax.Array) -> DeviceState:
            assert state.history is not None
            draft_lens = None if state.draft_lens is None else state.draft_lens.at[slots].set(lens)
            return replace(state, history=state.history.at[slots].set(tokens), draft_lens=draft_lens)

        column = self._whole((PREFIX_SLOTS,), jnp.int32)
        tokens = self._whole((PREFIX_SLOTS, self.history_len), jnp.int32)
        return self._update("set_history", function, column, tokens, column)

    def keep_earlier(self) -> Program:
        """(state, places in the ring of earlier tokens, tokens, their owners) -> state."""

        def function(state: DeviceState, places: jax.Array, tokens: jax.Array, owners: jax.Array) -> DeviceState:
            assert state.earlier is not None
            new = jnp.stack([tokens, owners])
            return replace(state, earlier=state.earlier.at[:, places].set(new, mode="drop"))

        column = self._whole((EARLIER_TOKENS,), jnp.int32)
        return self._update("keep_earlier", function, column, column, column)

    def copy_sinks(self) -> Program:
        """(state, copies of each kind of layers with full attention) -> state."""
        model, num_sinks = self.settings.model, self.num_sinks or 0
        full = [kind.attention for kind in model.config.kinds if kind.attention.window is None]

        def function(state: DeviceState, copies: tuple[SinkCopies, ...]) -> DeviceState:
            kinds = list(zip(full, copies, strict=True))
            return replace(state, kv=copy_sinks(model.mesh, self.layout.pages, num_sinks, kinds, state.kv))

        column: Any = self._whole((MAX_COPIES,), jnp.int32)
        return self._update("copy_sinks", function, (SinkCopies(*[column] * 4),) * len(full))

    def load_adapter(self) -> Program:
        """(state, pages, their content, place, its table) -> state."""
        shape, model = self.adapter_table, self.settings.model
        assert shape is not None

        def function(
            state: DeviceState, ids: jax.Array, content: jax.Array, place: jax.Array, table: jax.Array
        ) -> DeviceState:
            assert state.adapters is not None
            pool = scatter_pages(model.mesh, KVState(state.kv.pool), ids, KVState(content)).pool
            kv = replace(state.kv, pool=pool)
            return replace(state, kv=kv, adapters=state.adapters.at[place].set(table))

        content = self.layout.arrays(TRANSFER_PAGES, self.layout.sharding(model.mesh)).pool
        ids, place = self._whole((TRANSFER_PAGES,), jnp.int32), self._whole((), jnp.int32)
        return self._update("load_adapter", function, ids, content, place, self._whole(shape[1:], jnp.int32))

    def save_pages(self) -> Program:
        """(state, pages) -> (state, their content in host memory)."""

        def function(state: DeviceState, ids: jax.Array) -> tuple[DeviceState, KVState]:
            return state, gather_pages(self.settings.model.mesh, state.kv, ids)

        ids = self._whole((TRANSFER_PAGES,), jnp.int32)
        rest = (self.layout.host_sharding(self.settings.model.mesh),)
        return self._program("save_pages", function, (self.state, ids), state=0, rest=rest)

    def load_pages(self) -> Program:
        """(state, pages, their content) -> state."""

        def function(state: DeviceState, ids: jax.Array, pages: KVState) -> DeviceState:
            return replace(state, kv=scatter_pages(self.settings.model.mesh, state.kv, ids, pages))

        pages = self.layout.arrays(TRANSFER_PAGES, self.layout.sharding(self.settings.model.mesh))
        return self._update("load_pages", function, self._whole((TRANSFER_PAGES,), jnp.int32), pages)

    @property
    def draw_sizes(self) -> tuple[int, ...]:
        """Rows of the programs `draw` and `set_masks`. At most half of them are padding: all rows of a step may draw
        late."""
        return ladder(min(DRAW_ROWS, self.num_slots), self.num_slots, 2)

    def all(self, buckets: list[Bucket]) -> list[Program]:
        """All programs of an engine: a step for each bucket, and what edits, copies and fills in slots and pages."""
        rest = [self.save_pages(), self.load_pages()] if self.has_host_tier else []
        rest += [self.set_history()] if self.history_len else []
        rest += [self.keep_earlier()] if self.num_earlier_tokens else []
        rest += [self.copy_sinks()] if self.num_sinks is not None else []
        updates = [self.fork(), self.set_edits(), self.set_counts()]
        late = [make(size) for make in (self.draw, self.set_masks) for size in self.draw_sizes]
        late += [self.draw_nodes(b) for b in buckets if b.is_verify and self.settings.has_late_drafts]
        steps = list(map(self.step, buckets))
        if self.settings.adapters is not None:
            steps += [self.step(bucket, has_adapters=True) for bucket in buckets]
            rest += [self.load_adapter()]
        return [*steps, *late, *updates, *rest]

    def _stored(self, specs: Params) -> Params:
        mesh = self.settings.model.mesh
        return stored(targets(specs, mesh), mesh)

    def _whole(self, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated(self.settings.model.mesh))

    def _update(self, name: str, function: Callable[..., Any], *arrays: Any) -> Program:
        return self._program(name, function, (self.state, *arrays), state=0, rest=None)

    def _program(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        state: int,
        rest: tuple[NamedSharding, ...] | None,
    ) -> Program:
        """state: index of the state among the arguments. rest: shardings of the results after it; None: no results."""

        def traced(*args: Any) -> Any:
            self.traces[name] += 1
            return function(*args)

        def sharding(array: jax.ShapeDtypeStruct) -> Any:
            return array.sharding

        traced.__name__ = name  # the program's name in profiles and in XLA
        kept = jax.tree.map(sharding, self.state)
        out_shardings = kept if rest is None else (kept, *rest)
        return Program(name, self.settings.model.mesh, traced, args, state, out_shardings)
