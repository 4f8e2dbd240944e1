"""Device: `Runner`, which owns weights, device state and executables: submits plans, collects outcomes."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import CachedPrefix, Forks, PageDrops, PageLoad, PageSave, SlotEdits, StepPlan
from jaxserve.models.params import Params
from jaxserve.runner.device_state import MAX_EDITS, init_state
from jaxserve.runner.host_pages import TRANSFER_PAGES, HostPages
from jaxserve.runner.programs.executables import Compiler, Executables
from jaxserve.runner.programs.programs import FORK_PAGES, FORK_SLOTS, Program, Programs
from jaxserve.runner.programs.stored_layouts import destination
from jaxserve.runner.sink_copies import MAX_COPIES, SinkCopies
from jaxserve.runner.step.batch_layout import BatchLayout, pack
from jaxserve.runner.step.step_output import read_logprobs, read_output, read_row_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.verify_output import read_verified, read_verified_logprobs
from jaxserve.sampling.penalty_counts import count_tokens


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


class Runner:
    """Runs plans on the device. Each program is compiled once: on demand until `freeze`, never afterwards.

    num_host_pages: pages of the host tier; 0: none.
    """

    def __init__(
        self, programs: Programs, params: Params, compiler: Compiler = Program.compile, *, num_host_pages: int = 0
    ):
        self.programs, self.params = programs, params
        self.num_reads = 0  # steps read back by `collect`
        self._state = init_state(
            programs.layout,
            programs.num_pages,
            programs.num_slots,
            programs.vocab,
            programs.settings.model.mesh,
            programs.history_len,
        )
        if programs.settings.model.mesh.devices.flat[0].platform != "cpu":
            jax.block_until_ready(self._state)  # out-of-memory errors appear here; on CPU they appeared before
        self._executables = Executables(compiler)
        self._batch_layouts: dict[Bucket, BatchLayout] = {}
        self._host_pages = HostPages(programs.layout, num_host_pages)

    def submit(self, plan: StepPlan) -> Ticket:
        """Dispatch one step to the device and return at once."""
        if plan.drops is not None:
            self._copy_sinks(plan.drops)
        for transfer in plan.transfers:
            self._transfer(transfer)
        if plan.forks is not None:
            self._fork(plan.forks)
        for edits in plan.edits:  # after the forks, which copy their source's edits
            self._set_edits(edits)
        for prefix in plan.cached_prefixes:
            self._take_over(prefix)
        bucket = plan.bucket
        with jax.profiler.TraceAnnotation("pack"):
            buffer = pack(self._batch_layout(bucket), plan, scratch_slot=self.programs.num_slots)
        execute = self._executables.get(str(bucket), lambda: self.programs.step(bucket))
        with jax.profiler.TraceAnnotation("dispatch"):
            self._state, output, extras = execute(self.params, self._state, buffer)
        ticket = Ticket(
            step_id=plan.step_id,
            bucket=bucket,
            num_rows=plan.num_rows,
            num_targets=plan.num_targets,
            output=output,
            logprobs=extras.logprobs if plan.has_logprobs else None,
            prompt_logprobs=extras.prompt_logprobs if plan.num_targets else None,
            pooled=extras.pooled if plan.has_pooled else None,
        )
        for result in (ticket.output, ticket.logprobs, ticket.prompt_logprobs, ticket.pooled):
            if result is not None:
                result.copy_to_host_async()
        return ticket

    def collect(self, ticket: Ticket) -> StepOutcome:
        """Wait for a step and read its results; the only method that blocks on or reads from the device in serving."""
        self.num_reads += 1
        bucket, num_rows, k = ticket.bucket, ticket.num_rows, self.settings.max_logprobs
        if bucket.is_verify:
            return self._verified(ticket)
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
        jax.block_until_ready(self._state.pool)

    def time_load(self) -> float:
        """Seconds to copy a page from host memory into the pool, measured on the scratch page; no step may run."""
        empty = PageLoad(np.zeros(TRANSFER_PAGES, np.int32), np.zeros(TRANSFER_PAGES, np.int32))
        self._transfer(empty)  # may compile
        self.wait()
        started_s = time.perf_counter()
        self._transfer(empty)
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
    def targets(self) -> Params:
        """Shape, dtype, sharding and layout of each weight."""
        return self.programs.params

    @property
    def executables(self) -> dict[str, Any]:
        """Compiled executables by name, for inspection."""
        return dict(self._executables.by_name)

    def _batch_layout(self, bucket: Bucket) -> BatchLayout:
        if bucket not in self._batch_layouts:
            self._batch_layouts[bucket] = self.programs.batch_layout(bucket)
        return self._batch_layouts[bucket]

    def _set_edits(self, edits: SlotEdits) -> None:
        count, vocab = len(edits.ids), self.programs.vocab
        if count > MAX_EDITS:
            raise ValueError(f"{count} logit edits in one slot exceed the capacity of {MAX_EDITS}")
        ids = np.full(MAX_EDITS, vocab, np.int32)  # ids past the vocabulary are dropped
        bias, until = np.zeros(MAX_EDITS, np.float32), np.zeros(MAX_EDITS, np.int32)
        ids[:count], bias[:count], until[:count] = edits.ids, edits.bias, edits.until
        execute = self._executables.get("set_edits", self.programs.set_edits)
        self._state = execute(self._state, np.int32(edits.slot), ids, bias, until)
        if edits.mask is not None:
            mask = np.zeros(-(-vocab // 32), np.uint32)
            mask[: len(edits.mask)] = edits.mask
            execute = self._executables.get("set_mask", self.programs.set_mask)
            self._state = execute(self._state, np.int32(edits.slot + 1), mask)

    def _take_over(self, prefix: CachedPrefix) -> None:
        slot = np.int32(prefix.slot)
        if prefix.is_counted:
            counts = count_tokens(prefix.tokens, prefix.prompt_len, self.programs.vocab)
            execute = self._executables.get("set_counts", self.programs.set_counts)
            self._state = execute(self._state, slot, counts)
        if self.programs.history_len:
            execute = self._executables.get("set_history", self.programs.set_history)
            self._state = execute(self._state, slot, _padded(prefix.tokens, self.programs.history_len, 0))

    def _copy_sinks(self, drops: PageDrops) -> None:
        """Of kinds with several groups, and of many rows, some at a time."""
        execute, model = self._executables.get("copy_sinks", self.programs.copy_sinks), self.settings.model.config
        columns = np.stack([drops.sink_pages, drops.rest_pages, drops.own_pages, drops.num_dropped])
        kinds = [
            columns[:, (drops.groups >= start) & (drops.groups < end)]
            for kind, (start, end) in zip(model.kinds, model.group_ranges, strict=True)
            if kind.attention.window is None
        ]
        for i in range(0, max(of_kind.shape[1] for of_kind in kinds), MAX_COPIES):
            part = slice(i, i + MAX_COPIES)
            padded: list[list[Any]] = [[_padded(c[part], MAX_COPIES, 0) for c in of_kind] for of_kind in kinds]
            self._state = execute(self._state, tuple(SinkCopies(*of_kind) for of_kind in padded))

    def _transfer(self, transfer: PageSave | PageLoad) -> None:
        for i in range(0, len(transfer.pages), TRANSFER_PAGES):
            part = slice(i, i + TRANSFER_PAGES)
            pages, host_pages = _padded(transfer.pages[part], TRANSFER_PAGES, 0), transfer.host_pages[part]
            if isinstance(transfer, PageSave):
                self._state, content = self._executables.get("save_pages", self.programs.save_pages)(self._state, pages)
                self._host_pages.put(host_pages, content)
            else:
                content = self._host_pages.get(_padded(host_pages, TRANSFER_PAGES, 0))
                execute = self._executables.get("load_pages", self.programs.load_pages)
                self._state = execute(self._state, pages, content)

    def _fork(self, forks: Forks) -> None:
        execute, scratch = self._executables.get("fork", self.programs.fork), self.programs.num_slots
        for i in range(0, max(len(forks.src_pages), 1), FORK_PAGES):
            pages = [_padded(a[i : i + FORK_PAGES], FORK_PAGES, 0) for a in (forks.src_pages, forks.dst_pages)]
            slots = [np.full(FORK_SLOTS, scratch, np.int32)] * 2
            self._state = execute(self._state, *pages, *slots)
        for i in range(0, len(forks.src_slots), FORK_SLOTS):
            pages = [np.zeros(FORK_PAGES, np.int32)] * 2
            slots = [_padded(a[i : i + FORK_SLOTS], FORK_SLOTS, scratch) for a in (forks.src_slots, forks.dst_slots)]
            self._state = execute(self._state, *pages, *slots)


def _padded(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    out = np.full(size, fill, np.int32)
    out[: len(values)] = values
    return out
