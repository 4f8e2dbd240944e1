"""Device: `Runner`, the owner of weights, device state and executables: submits plans, collects outcomes."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.errors import FrozenBucketError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.plan import Forks, Outcome, Plan, SlotEdits
from jaxserve.core.sharding import replicated
from jaxserve.kv.layout import KVLayout
from jaxserve.models.params import Params, declare, targets, vocab_width
from jaxserve.runner.output import read_logprobs, read_output
from jaxserve.runner.pack import BatchLayout, pack
from jaxserve.runner.state import MAX_EDITS, DeviceState, init_state
from jaxserve.runner.steps import StepSettings, fork, step
from jaxserve.sampling.batch import set_edits, set_mask

FORK_PAGES, FORK_SLOTS = 64, 16  # copies in one call; longer lists take several calls


@dataclass(frozen=True, slots=True)
class Ticket:
    """A step in flight: its output on the device, and what is needed to read it."""

    step_id: int
    output: jax.Array
    bucket: Bucket
    num_rows: int
    prompt_logprobs: jax.Array | None  # where the plan asks for them
    num_targets: int
    pooled: jax.Array | None  # where the plan asks for it


class Runner:
    """Runs plans on the device. Executables are compiled once each: on demand until `freeze`, never after it."""

    def __init__(
        self,
        settings: StepSettings,
        params: Params,
        layout: KVLayout,
        groups: KVGroups,
        *,
        num_pages: int,
        num_slots: int,
    ):
        self.settings, self.params = settings, params
        self.traces: Counter[str] = Counter()  # how often each executable's Python was traced
        self.num_reads = 0  # steps read back, each in `collect`
        self._groups, self._num_slots = groups, num_slots
        self._vocab = vocab_width(settings.config, settings.mesh)
        self._state = init_state(layout, num_pages, num_slots, self._vocab, settings.mesh)
        self._executables: dict[str, Any] = {}
        self._layouts: dict[Bucket, BatchLayout] = {}
        self._is_frozen = False

    def submit(self, plan: Plan) -> Ticket:
        """Send one step to the device and return at once."""
        if plan.forks is not None:
            self._fork(plan.forks)
        for edits in plan.edits:  # after the forks, which copy their source's edits
            self._edit(edits)
        layout = self._layout(plan.bucket)
        buffer = pack(layout, plan, scratch_slot=self._num_slots)
        self._state, output, prompts = self._step(plan.bucket)(self.params, self._state, buffer)
        logprobs = prompts.logprobs if plan.num_targets else None
        pooled = prompts.pooled if plan.is_pooled.any() else None
        for result in (output, logprobs, pooled):
            if result is not None:
                result.copy_to_host_async()
        return Ticket(
            step_id=plan.step_id,
            output=output,
            bucket=plan.bucket,
            num_rows=plan.num_rows,
            prompt_logprobs=logprobs,
            num_targets=plan.num_targets,
            pooled=pooled,
        )

    def collect(self, ticket: Ticket) -> Outcome:
        """Wait for a step and read what it produced; the only place that blocks or reads from the device."""
        self.num_reads += 1
        k = self.settings.max_logprobs
        outcome = read_output(ticket.step_id, np.asarray(ticket.output), ticket.bucket, ticket.num_rows, k)
        if ticket.prompt_logprobs is not None:
            logprobs = read_logprobs(np.asarray(ticket.prompt_logprobs), ticket.num_targets, k)
            outcome = replace(outcome, prompt_logprobs=logprobs)
        if ticket.pooled is not None:
            outcome = replace(outcome, pooled=np.asarray(ticket.pooled)[: ticket.num_rows])
        return outcome

    def swap_params(self, params: Params) -> None:
        """Take over weights that fit `targets`, leaf by leaf: each old one goes before the next comes.

        Should a leaf find no memory, or an interrupt come, no weights are left: steps fail until the call is repeated.
        """
        wanted, tree = jax.tree.flatten(self.targets)
        old, self.params = jax.tree.leaves(self.params), {}
        placed = []
        for leaf, target in zip(jax.tree.leaves(params), wanted, strict=True):
            old[:1] = []
            # On CPU a numpy array would be shared, and its owner may write to it: the copy is the engine's own.
            own = leaf if isinstance(leaf, jax.Array) else np.array(leaf)
            placed.append(jax.block_until_ready(jax.device_put(own, target.sharding)))
        self.params = jax.tree.unflatten(tree, placed)

    def warm_up(self, buckets: Iterable[Bucket]) -> None:
        """Compile what a serving engine can need: a step for each bucket, the edits and the forks."""
        for bucket in buckets:
            self._step(bucket)
        self._fork_pages()
        self._set_edits()
        self._set_mask()

    def freeze(self) -> None:
        """From now on a shape that was not compiled is an error that names it."""
        self._is_frozen = True

    @property
    def dtype(self) -> Any:
        """Type of activations and KV."""
        return self._state.pool.dtype

    @property
    def targets(self) -> Params:
        """Shape, dtype and sharding of each weight."""
        mesh = self.settings.mesh
        return targets(declare(self.settings.config, mesh, self.dtype), mesh)

    @property
    def executables(self) -> dict[str, Any]:
        """Compiled executables by name, for inspection."""
        return dict(self._executables)

    def _layout(self, bucket: Bucket) -> BatchLayout:
        if bucket not in self._layouts:
            self._layouts[bucket] = BatchLayout(bucket, self._groups, self.settings.config.group_ranges)
        return self._layouts[bucket]

    def _step(self, bucket: Bucket) -> Any:
        name = str(bucket)
        if name in self._executables:
            return self._executables[name]
        layout = self._layout(bucket)
        whole = replicated(self.settings.mesh)
        buffer = jax.ShapeDtypeStruct((layout.size,), jnp.int32, sharding=whole)
        function = partial(step, self.settings, layout)
        return self._compile(name, function, (self.params, self._state, buffer), state=1, out=(..., whole, whole))

    def _edit(self, edits: SlotEdits) -> None:
        count = len(edits.ids)
        if count > MAX_EDITS:
            raise ValueError(f"{count} logit edits in one slot; the device holds {MAX_EDITS}")
        ids = np.full(MAX_EDITS, self._vocab, np.int32)  # ids past the vocabulary are dropped
        bias, until = np.zeros(MAX_EDITS, np.float32), np.zeros(MAX_EDITS, np.int32)
        ids[:count], bias[:count], until[:count] = edits.ids, edits.bias, edits.until
        self._state = self._set_edits()(self._state, np.int32(edits.slot), ids, bias, until)
        if edits.mask is not None:
            mask = np.zeros(-(-self._vocab // 32), np.uint32)
            mask[: len(edits.mask)] = edits.mask
            self._state = self._set_mask()(self._state, np.int32(edits.slot + 1), mask)

    def _fork(self, forks: Forks) -> None:
        for i in range(0, max(len(forks.src_pages), 1), FORK_PAGES):
            pages = [_padded(a[i : i + FORK_PAGES], FORK_PAGES, 0) for a in (forks.src_pages, forks.dst_pages)]
            slots = [np.full(FORK_SLOTS, self._num_slots, np.int32)] * 2
            self._state = self._fork_pages()(self._state, *pages, *slots)
        for i in range(0, len(forks.src_slots), FORK_SLOTS):
            pages = [np.zeros(FORK_PAGES, np.int32)] * 2
            slots = [
                _padded(a[i : i + FORK_SLOTS], FORK_SLOTS, self._num_slots) for a in (forks.src_slots, forks.dst_slots)
            ]
            self._state = self._fork_pages()(self._state, *pages, *slots)

    def _fork_pages(self) -> Any:
        return self._update(
            "fork", partial(fork, self.settings.mesh), *[(FORK_PAGES, jnp.int32)] * 2, *[(FORK_SLOTS, jnp.int32)] * 2
        )

    def _set_edits(self) -> Any:
        def function(state: DeviceState, slot, ids, bias, until) -> DeviceState:
            return replace(state, slots=set_edits(state.slots, slot, ids, bias, until))

        width = MAX_EDITS
        return self._update(
            "set_edits", function, ((), jnp.int32), (width, jnp.int32), (width, jnp.float32), (width, jnp.int32)
        )

    def _set_mask(self) -> Any:
        def function(state: DeviceState, row, mask) -> DeviceState:
            return replace(state, slots=set_mask(state.slots, row, mask))

        return self._update("set_mask", function, ((), jnp.int32), (-(-self._vocab // 32), jnp.uint32))

    def _update(self, name: str, function: Callable, *arrays: tuple) -> Any:
        """An executable from (state, arrays of these shapes and dtypes) to state."""
        if name in self._executables:
            return self._executables[name]
        whole = replicated(self.settings.mesh)
        shapes = [(shape if isinstance(shape, tuple) else (shape,), dtype) for shape, dtype in arrays]
        args = [jax.ShapeDtypeStruct(shape, dtype, sharding=whole) for shape, dtype in shapes]
        return self._compile(name, function, (self._state, *args), state=0, out=...)

    def _compile(self, name: str, function: Callable, args: tuple, *, state: int, out: Any) -> Any:
        """Trace and compile once. `...` in `out` stands for the state, which keeps its sharding and is donated."""
        if self._is_frozen:
            raise FrozenBucketError(
                f"{name} was not compiled during warm-up and the engine is frozen; compiled are: "
                f"{', '.join(sorted(self._executables))}. Add the shape to the buckets, or do not freeze."
            )

        def traced(*args):
            self.traces[name] += 1
            return function(*args)

        kept = jax.tree.map(lambda a: a.sharding, self._state)
        out_shardings = kept if out is ... else tuple(kept if o is ... else o for o in out)
        jitted = jax.jit(traced, donate_argnums=(state,), out_shardings=out_shardings)
        self._executables[name] = jitted.lower(*args).compile()
        return self._executables[name]


def _padded(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    out = np.full(size, fill, np.int32)
    out[: len(values)] = values
    return out
