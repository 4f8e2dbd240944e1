"""Device: `Runner`, which owns weights, device state and executables: submits plans, collects outcomes."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.device_ops import PageLoad
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.models.params import Params, with_draft
from jaxserve.runner.device_state import init_state
from jaxserve.runner.dispatch_ops import DeviceOps
from jaxserve.runner.host_pages import TRANSFER_PAGES, HostPages
from jaxserve.runner.programs.executables import Compiler, Executables
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.programs import Programs, step_name
from jaxserve.runner.programs.stored_layouts import destination
from jaxserve.runner.step.batch_layout import BatchLayout, pack
from jaxserve.runner.step.late_draw import LateRows, late_table
from jaxserve.runner.step.late_nodes import LateNodeRows, node_table
from jaxserve.runner.step.step_output import LateNodes, read_logprobs, read_output, read_row_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.verify_output import read_verified, read_verified_logprobs


@dataclass(frozen=True, slots=True)
class Ticket:
    """A step in flight: its results, still on the device (None: not requested), and the sizes needed to read them."""

    step_id: int
    bucket: Bucket
    num_rows: int
    num_targets: int
    output: jax.Array
    logprobs: jax.Array | None
    prompt_logprobs: jax.Array | None
    pooled: jax.Array | None
    late_rows: np.ndarray  # int64[L]: rows that draw after the step
    nodes: LateNodes | None  # of late rows, if some of these may have drafts
    late: LateRows | LateNodeRows | None = None  # from `Runner.draw` on


class Runner:
    """Runs plans on the device. Each program is compiled once: on demand until `freeze`, never afterwards.

    draft_params: weights of the draft model, if there is one. num_host_pages: pages of the host tier; 0: none.
    """

    def __init__(
        self,
        programs: Programs,
        params: Params,
        compiler: Compiler = Program.compile,
        *,
        draft_params: Params | None = None,
        num_host_pages: int = 0,
    ):
        self.programs, self.params, self.draft_params = programs, params, draft_params
        self.num_reads = 0  # steps read back by `collect`
        self._state = init_state(programs.layout, programs.num_pages, programs.slot_sizes, programs.settings.model.mesh)
        self._is_on_cpu = programs.settings.model.mesh.devices.flat[0].platform == "cpu"
        if not self._is_on_cpu:
            jax.block_until_ready(self._state)  # out-of-memory errors appear here; on CPU they appeared before
        self._executables = Executables(compiler)
        self._batch_layouts: dict[Bucket, BatchLayout] = {}
        self._ops = DeviceOps(programs, self._executables, HostPages(programs.layout, num_host_pages))

    def submit(self, plan: StepPlan) -> Ticket:
        """Dispatch one step to the device and return at once."""
        if plan.ops:
            self._state = self._ops.make(self._state, plan.ops)
        bucket = plan.bucket
        with jax.profiler.TraceAnnotation("pack"):
            buffer = pack(self._batch_layout(bucket), plan, scratch_slot=self.programs.num_slots)
        name = step_name(bucket, has_adapters=plan.has_adapters)
        execute = self._executables.get(name, lambda: self.programs.step(bucket, has_adapters=plan.has_adapters))
        with jax.profiler.TraceAnnotation("dispatch"):
            self._state, output, extras = execute(self.weights, self._state, buffer)
        ticket = Ticket(
            step_id=plan.step_id,
            bucket=bucket,
            num_rows=plan.num_rows,
            num_targets=plan.num_targets,
            output=output,
            logprobs=extras.logprobs if plan.has_logprobs else None,
            prompt_logprobs=extras.prompt_logprobs if plan.num_targets else None,
            pooled=extras.pooled if plan.has_pooled else None,
            late_rows=plan.late_rows,
            nodes=extras.late if plan.has_late_drafts else None,
        )
        self._copy_to_host(ticket.output, ticket.logprobs, ticket.prompt_logprobs, ticket.pooled)
        if ticket.nodes is not None:
            self._copy_to_host(ticket.nodes.drafts, ticket.nodes.num)
        return ticket

    def late_drafts(self, ticket: Ticket) -> list[list[int]]:
        """Wait for the drafts of a step's late rows, in their order."""
        assert ticket.nodes is not None, "late rows of the step have no drafts"
        drafts, num = (np.asarray(table)[ticket.late_rows] for table in (ticket.nodes.drafts, ticket.nodes.num))
        return [row[:count] for row, count in zip(drafts.tolist(), num.tolist(), strict=True)]

    def draw(self, ticket: Ticket, late: LateDraw) -> Ticket:
        """Dispatch the draw of a step's late rows and return at once; the ticket has its results."""
        assert len(ticket.late_rows), "the step has no late rows"
        programs, count = self.programs, len(late.rows)
        self._state = self._ops.make(self._state, late.ops)
        if count == 0:
            return replace(ticket, late_rows=ticket.late_rows[:0])
        if late.drafts is not None:
            return self._draw_nodes(ticket, late)
        size = next(size for size in programs.draw_sizes if size >= count)
        program = partial(programs.draw, size)
        execute = self._executables.get(f"draw[rows={size}]", program)
        self._state, output, logprobs = execute(self.weights, self._state, late_table(late, size, programs.num_slots))
        drawn = LateRows(late.rows, output, None if ticket.logprobs is None else logprobs)
        self._copy_to_host(drawn.output, drawn.logprobs)
        return replace(ticket, late=drawn)

    def _draw_nodes(self, ticket: Ticket, late: LateDraw) -> Ticket:
        bucket = ticket.bucket
        width, program = 1 + bucket.max_drafts, partial(self.programs.draw_nodes, bucket)
        execute = self._executables.get(f"draw_{bucket}", program)
        table = node_table(late, bucket.num_rows, width, self.programs.num_slots)
        self._state, output, logprobs = execute(self.weights, self._state, ticket.nodes, table)
        drawn = LateNodeRows(late.rows, width, output, None if ticket.logprobs is None else logprobs)
        self._copy_to_host(drawn.output, drawn.logprobs)
        return replace(ticket, nodes=None, late=drawn)

    def has_run(self, ticket: Ticket) -> bool:
        """Whether the device has done a step's forward passes; does not wait."""
        output: Any = ticket.output  # `jax.Array` does not declare the method
        return bool(output.is_ready())

    def collect(self, ticket: Ticket) -> StepOutcome:
        """Wait for a step and read its results. In serving no other method but `late_drafts` blocks on or reads from
        the device."""
        self.num_reads += 1
        outcome = self._verified(ticket) if ticket.bucket.is_verify else self._drawn(ticket)
        assert ticket.late is not None or not len(ticket.late_rows), (
            "late rows must be drawn before their step is collected"
        )
        return outcome if ticket.late is None else ticket.late.complete(outcome, self.settings.max_logprobs)

    def _copy_to_host(self, *results: jax.Array | None) -> None:
        """Start copies while the device runs. On CPU there is nothing to copy: 40 of 750 us of a step of 64 rows."""
        if self._is_on_cpu:
            return
        for result in results:
            if result is not None:
                result.copy_to_host_async()

    def _drawn(self, ticket: Ticket) -> StepOutcome:
        bucket, num_rows, k = ticket.bucket, ticket.num_rows, self.settings.max_logprobs
        outcome = StepOutcome(ticket.step_id, *read_output(np.asarray(ticket.output), bucket, num_rows))
        if ticket.logprobs is not None:
            logprobs = read_row_logprobs(np.asarray(ticket.logprobs), bucket, num_rows, k)
            outcome = replace(outcome, logprobs=logprobs)
        if ticket.prompt_logprobs is not None:
            logprobs = read_logprobs(np.asarray(ticket.prompt_logprobs), ticket.num_targets, k)
            outcome = replace(outcome, prompt_logprobs=logprobs)
        if ticket.pooled is not None:
            outcome = replace(outcome, pooled=np.asarray(ticket.pooled)[:num_rows])
        return outcome

    def _verified(self, ticket: Ticket) -> StepOutcome:
        found = read_verified(np.asarray(ticket.output), ticket.bucket, ticket.num_rows)
        logprobs = None
        if ticket.logprobs is not None:
            k = self.settings.max_logprobs
            logprobs = read_verified_logprobs(np.asarray(ticket.logprobs), ticket.bucket, found, k)
        return StepOutcome(
            step_id=ticket.step_id,
            num_rounds=found.num_rounds,
            num_tokens=found.num_tokens,
            tokens=found.tokens,
            is_bad=found.is_bad,
            logprobs=logprobs,
            drafts=found.drafts,
        )

    def wait(self) -> None:
        """Wait until the device has run all that was submitted."""
        jax.block_until_ready(self._state.kv)

    def time_load(self) -> float:
        """Seconds to copy a page from host memory into the pool, measured on the scratch page; no step may run."""
        empty = PageLoad(np.zeros(TRANSFER_PAGES, np.int32), np.zeros(TRANSFER_PAGES, np.int32))
        self._state = self._ops.make(self._state, [empty])  # may compile
        self.wait()
        started_s = time.perf_counter()
        self._state = self._ops.make(self._state, [empty])
        self.wait()
        return (time.perf_counter() - started_s) / TRANSFER_PAGES

    def swap_params(self, arrays: Iterable[Any]) -> None:
        """Replace the weights by arrays that fit `targets`, in its order: each old one is freed before its copy.

        After an out-of-memory error or an interrupt there are no weights: steps fail until the call is repeated.
        """
        targets: list[jax.ShapeDtypeStruct] = jax.tree.leaves(self.targets)
        old: list[jax.Array] = jax.tree.leaves(self.params)
        self.params = {}
        placed: list[jax.Array] = []
        for leaf, target in zip(arrays, targets, strict=True):
            old[:1] = []
            # On CPU a numpy array would be shared, and its owner may write to it: hence the copy.
            own: Any = leaf if isinstance(leaf, jax.Array) else np.copy(leaf)
            placed.append(cast(jax.Array, jax.device_put(own, destination(target))).block_until_ready())
        self.params = jax.tree.unflatten(jax.tree.structure(self.targets), placed)

    def warm_up(self, programs: list[Program], on_compiled: Callable[[str], None] = lambda name: None) -> None:
        """Compile programs concurrently; `on_compiled` is called with the name of each."""
        self._executables.compile_all(programs, on_compiled)

    def freeze(self) -> None:
        """Make every shape that was not compiled an error from now on (`FrozenBucketError`)."""
        self._executables.freeze()

    def release(self) -> None:
        """Free the memory of state and executables; the runner cannot be used afterwards."""
        for leaf in jax.tree.leaves(self._state):
            leaf.delete()
        self._executables.by_name.clear()

    @property
    def settings(self) -> StepSettings:
        return self.programs.settings

    @property
    def weights(self) -> Params:
        """All weights, as steps take them."""
        return with_draft(self.params, self.draft_params)

    @property
    def targets(self) -> Params:
        """Shape, dtype, sharding and layout of each weight of the model."""
        return self.programs.params

    @property
    def executables(self) -> dict[str, Any]:
        """Compiled executables by name, for inspection."""
        return dict(self._executables.by_name)

    def _batch_layout(self, bucket: Bucket) -> BatchLayout:
        if bucket not in self._batch_layouts:
            self._batch_layouts[bucket] = self.programs.batch_layout(bucket)
        return self._batch_layouts[bucket]
