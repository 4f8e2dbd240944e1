"""Device: `Programs`, all programs of an engine; those of its steps."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax.numpy as jnp

from jaxserve.core.buckets import Bucket, ladder
from jaxserve.core.hardware.mesh import replicated
from jaxserve.core.row_layout import ROW_FIELDS
from jaxserve.runner.programs.engine_shapes import EngineShapes
from jaxserve.runner.programs.page_programs import copy_sinks, load_adapter, load_pages, save_pages
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.slot_programs import fork, keep_earlier, set_counts, set_edits, set_history, set_masks
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.late_draw import draw_late
from jaxserve.runner.step.late_nodes import draw_nodes
from jaxserve.runner.step.step import step
from jaxserve.runner.step.step_output import LateNodes

DRAW_ROWS = 8  # of the smallest `draw`


def step_name(bucket: Bucket, *, has_adapters: bool) -> str:
    """The name of a step's program."""
    return f"{bucket}+adapters" if has_adapters else str(bucket)


@dataclass(frozen=True)
class Programs(EngineShapes):
    """Functions over the arrays of an engine."""

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
        args = (self.weights, self.state, self.whole((layout.size,), jnp.int32))
        name = step_name(bucket, has_adapters=has_adapters)
        program = self.program(name, partial(step, self.settings, layout), args, state=1, rest=(whole, whole))
        return replace(program, bucket=bucket)

    def draw(self, num_rows: int) -> Program:
        """(weights, state, rows) -> (state, output, log-probabilities): `draw_late` of up to `num_rows` rows."""
        whole = replicated(self.settings.model.mesh)
        args = (self.weights, self.state, self.whole((num_rows, len(ROW_FIELDS)), jnp.int32))
        name = f"draw[rows={num_rows}]"
        program = self.program(name, partial(draw_late, self.settings), args, state=1, rest=(whole, whole))
        return replace(program, num_heads=num_rows)

    def draw_nodes(self, bucket: Bucket) -> Program:
        """(weights, state, nodes, table) -> (state, output, log-probabilities): `draw_nodes` of a verify bucket."""
        model, num_rows, width = self.settings.model, bucket.num_rows, 1 + bucket.max_drafts
        whole = replicated(model.mesh)
        hidden = self.whole((num_rows, width, model.config.d_model), model.dtype)
        drafts, num = (self.whole(shape, jnp.int32) for shape in ((num_rows, width - 1), (num_rows,)))
        table = self.whole((num_rows, len(ROW_FIELDS) + width), jnp.int32)
        args = (self.weights, self.state, LateNodes(*cast(Any, (hidden, drafts, num))), table)
        function = partial(draw_nodes, self.settings)
        program = self.program(f"draw_{bucket}", function, args, state=1, rest=(whole, whole))
        return replace(program, num_heads=bucket.num_heads)

    @property
    def draw_sizes(self) -> tuple[int, ...]:
        """Rows of the programs `draw` and `set_masks`. At most half of them are padding: all rows of a step may draw
        late."""
        return ladder(min(DRAW_ROWS, self.num_slots), self.num_slots, 2)

    def all(self, buckets: list[Bucket]) -> list[Program]:
        """All programs of an engine: a step for each bucket, and what edits, copies and fills in slots and pages."""
        rest = [save_pages(self), load_pages(self)] if self.has_host_tier else []
        rest += [set_history(self)] if self.history_len else []
        rest += [keep_earlier(self)] if self.num_earlier_tokens else []
        rest += [copy_sinks(self)] if self.num_sinks is not None else []
        updates = [fork(self), set_edits(self), set_counts(self)]
        late = [make(size) for make in (self.draw, partial(set_masks, self)) for size in self.draw_sizes]
        late += [self.draw_nodes(b) for b in buckets if b.is_verify and self.settings.has_late_drafts]
        steps = list(map(self.step, buckets))
        if self.settings.adapters is not None:
            steps += [self.step(bucket, has_adapters=True) for bucket in buckets]
            rest += [load_adapter(self)]
        return [*steps, *late, *updates, *rest]
