"""Device: `EngineShapes`, the sizes of an engine and the shapes of its weights and state. Nothing is allocated, and the
mesh may be an AOT mesh, built from a topology description."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
from jax.sharding import NamedSharding

from jaxserve.core.hardware.mesh import replicated
from jaxserve.core.kv_groups import KVGroups
from jaxserve.kv.pool_layout import KVLayout
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, declare, has_tuples_on, targets, vocab_width, with_draft
from jaxserve.runner.device_state import SlotSizes, init_slots
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.stored_layouts import stored
from jaxserve.runner.step.step_settings import StepSettings


@dataclass(frozen=True)
class EngineShapes:
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
        """Shape, dtype and sharding of the KV pool and of extra arrays."""
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
            return self.whole(array.shape, array.dtype)

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

    def whole(self, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        """An array that each device has whole."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=replicated(self.settings.model.mesh))

    def update(self, name: str, function: Callable[..., Any], *arrays: Any) -> Program:
        """(state, arrays) -> state."""
        return self.program(name, function, (self.state, *arrays), state=0, rest=None)

    def program(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        state: int,
        rest: tuple[NamedSharding, ...] | None,
    ) -> Program:
        """A program that keeps the state where it is.

        state: index of the state among the arguments. rest: shardings of the results after it; None: no results."""

        def traced(*args: Any) -> Any:
            self.traces[name] += 1
            return function(*args)

        def sharding(array: jax.ShapeDtypeStruct) -> Any:
            return array.sharding

        traced.__name__ = name  # the program's name in profiles and in XLA
        kept = jax.tree.map(sharding, self.state)
        out_shardings = kept if rest is None else (kept, *rest)
        return Program(name, self.settings.model.mesh, traced, args, state, out_shardings)

    def _stored(self, specs: Params) -> Params:
        mesh = self.settings.model.mesh
        return stored(targets(specs, mesh), mesh)
