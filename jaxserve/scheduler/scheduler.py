"""Host: `Scheduler`: add, abort, finish, schedule and commit, over one shared state; blind to the runner.

`schedule` may run while the plan before is in flight, `commit` takes outcomes in order. The pipeline is one step deep:
at most one plan is uncommitted when `schedule` is called.
"""

import numpy as np

from jaxserve.core.buckets import Buckets
from jaxserve.core.errors import RequestError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.core.token_deltas import TokenDeltas
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.prefix_cache import PrefixCache
from jaxserve.scheduler import commit as commits
from jaxserve.scheduler.beams import Choice, add_beams, branch, num_paused, preempt_paused_beam
from jaxserve.scheduler.memory.prefix_sharing import num_joining, requeue_deferred
from jaxserve.scheduler.memory.slots import end_sequence
from jaxserve.scheduler.policy.scheduling_policy import FirstComeFirstServed, SchedulingPolicy
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, queue_cost
from jaxserve.scheduler.state import PrefixGroup, SchedulerState, StepRows
from jaxserve.scheduler.step.admit import admit, admit_ahead
from jaxserve.scheduler.step.build_plan import build_plan
from jaxserve.scheduler.step.decode_rows import schedule_decodes
from jaxserve.scheduler.step.multi_step import plan_rounds
from jaxserve.scheduler.step.prefill_chunks import schedule_chunks
from jaxserve.scheduler.step_limits import StepLimits
from jaxserve.scheduler.swap_cost import SwapCost


class Scheduler:
    """Continuous batching under a token budget, over a pool of `num_pages` pages (the scratch page included).

    max_chunk_tokens: longest piece of a prompt in one step; None for the whole budget. order: that of service; by
    default of arrival. bounds: how much may wait. prefix_eviction: how the prefix cache chooses what to evict; None: no
    prefix cache. num_host_pages: room in host memory for what it evicts. swap_cost: whether loading from there is
    worth it; whoever runs the steps tells it what they take.
    """

    def __init__(
        self,
        groups: KVGroups,
        buckets: Buckets,
        *,
        num_pages: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        vocab_size: int,
        max_chunk_tokens: int | None = None,
        policy: SchedulingPolicy | None = None,
        queue_limits: QueueLimits | None = None,
        prefix_eviction: str | None = None,
        num_host_pages: int = 0,
        swap_cost: SwapCost | None = None,
    ):
        chunk = min(max_chunk_tokens or max_num_batched_tokens, max_num_batched_tokens)
        limits = StepLimits(max_num_seqs, max_num_batched_tokens, chunk, max_model_len, vocab_size)
        limits.check_budget()
        limits.check_pages(groups, num_pages)
        self.queue_limits = queue_limits or QueueLimits()
        self.queue_limits.check_len(max_model_len)
        self._buckets = buckets
        self._num_added = 0
        pool = PagePool(num_pages)
        host = HostTier(num_host_pages, groups.num_groups) if num_host_pages else None
        self.state = SchedulerState(
            limits=limits,
            groups=groups,
            policy=policy or FirstComeFirstServed(),
            pool=pool,
            slot_table=SlotTable(max_num_seqs, max_model_len, groups, limits.table_widths(groups)),
            prefixes=None
            if prefix_eviction is None
            else PrefixCache(pool, groups, EVICTION_POLICIES[prefix_eviction](), host),
            host=host,
            swap_cost=swap_cost or SwapCost(),
        )

    def add(self, request: Request) -> list[Sequence]:
        """Queue a request, one sequence a sample. Raises `RequestError`, and then nothing has changed."""
        return self.add_sharing([request], len(request.prompt_token_ids))

    def add_sharing(self, requests: list[Request], shared_len: int) -> list[Sequence]:
        """Queue requests whose prompts are equal in their first `shared_len` tokens: these are computed once.

        Once, that is, while a sequence that has their pages runs when the next one gets its slot. Returns one sequence
        a sample in the order of the requests. Raises `RequestError`, and then nothing has changed.
        """
        self.check(requests)
        self._check_sharing(requests, shared_len)
        sequences = self._register([(request, i) for request in requests for i in range(request.params.n)])
        prefix_group = PrefixGroup(shared_len)
        for sequence in sequences:
            self.state.waiting.add(sequence)
            if len(sequences) > 1:
                self.state.prefix_groups[sequence.sequence_id] = prefix_group
        return sequences

    def add_beams(self, request: Request, width: int, num_candidates: int) -> list[Sequence]:
        """Queue a request whose tokens the host chooses by `branch`, after up to `width` beams at a time.

        Returns the beams: the first has the prompt, the others are spare. They end by `abort`, or in an error.
        """
        self.check([request])
        beams = self._register([(request, i) for i in range(width)])
        add_beams(self.state, beams, num_candidates)
        return beams

    def candidates(self, beam: Sequence) -> TokenLogprobs | None:
        """The likeliest tokens after a beam's; None until they are known."""
        return self.state.beams[beam.sequence_id].candidates

    def branch(self, request_id: str, choices: list[Choice]) -> list[Sequence]:
        """Give a request's beams their next tokens, once all have candidates; returns the beam of each choice.

        Beams that no choice names give their pages back and are spare; the tokens of one may be chosen several times.
        """
        return branch(self.state, self.state.requests[request_id].copy(), choices)

    def _register(self, samples: list[tuple[Request, int]]) -> list[Sequence]:
        """Sequences of requests, numbered in this order, and in the books."""
        state = self.state
        sequences = [Sequence(self._num_added + k, *sample) for k, sample in enumerate(samples)]
        self._num_added += len(sequences)
        for sequence in sequences:
            state.requests.setdefault(sequence.request.request_id, []).append(sequence)
            state.sequences[sequence.sequence_id] = sequence
            state.policy.enter(sequence)
            state.deadlines.watch(sequence)
        return sequences

    def check(self, requests: list[Request]) -> None:
        """Raise `RequestError`, a `QueueFullError` perhaps, unless all of the requests could be added now."""
        new_ids = set[str]()
        for request in requests:
            if request.request_id in self.state.requests or request.request_id in new_ids:
                raise RequestError(f"request id {request.request_id!r} is in use; choose another one", "request_id")
            new_ids.add(request.request_id)
            self.check_fields(request)
        self.queue_limits.check(self.load, *queue_cost(requests))

    def check_fields(self, request: Request) -> None:
        """Raise `RequestError` for a request that this engine can never serve; from any thread, at any moment."""
        max_len, prompt = self.state.limits.max_model_len, request.prompt_token_ids
        if not 0 < len(prompt) < max_len + (request.max_tokens == 0):
            most = f"at most the {max_len}" if request.max_tokens == 0 else f"fewer than the {max_len}"
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; it must have at least 1, and {most} that prompt and output "
                "may have together",
                "prompt",
            )
        for name in ("priority", "tenant"):
            value = getattr(request.scheduling, name)
            if value != getattr(DEFAULT_SCHEDULING, name) and name not in self.state.policy.fields:
                raise RequestError(
                    f"{name}={value!r} means nothing to the scheduling_policy of this engine: leave it out, or "
                    "build the engine with another policy",
                    name,
                )

    def _check_sharing(self, requests: list[Request], shared_len: int) -> None:
        """Raise `RequestError` unless the requests begin alike."""
        for request in requests:
            prompt = request.prompt_token_ids
            is_equal = np.array_equal(prompt[:shared_len], requests[0].prompt_token_ids[:shared_len])
            if not is_equal or not 0 < shared_len <= len(prompt):
                raise RequestError(
                    f"prompts {requests[0].request_id!r} and {request.request_id!r} do not share {shared_len} tokens",
                    "prompt",
                )

    def abort(self, request_id: str) -> None:
        """End all samples of a request, wherever they are; nothing happens if there is none."""
        for sequence in self.state.requests.get(request_id, []).copy():
            end_sequence(self.state, sequence, "abort")

    def abort_all(self, reason: str) -> None:
        """End every request with this reason."""
        for sequence in list(self.state.sequences.values()):
            end_sequence(self.state, sequence, reason)

    def finish(self, sequence_id: int, reason: str, keep_tokens: int, stop_reason: int | str | None = None) -> None:
        """End one sequence after its first `keep_tokens` generated tokens; nothing happens if it has ended."""
        sequence = self.state.sequences.get(sequence_id)
        if sequence is not None:
            end_sequence(self.state, sequence, reason, stop_reason, keep_tokens)

    def expire(self, now_s: float) -> list[Sequence]:
        """End those that should have got a slot, or should have ended, by now; they keep the tokens that they have.

        now_s: on the clock by which requests arrived; whoever gets a slot before the next call got it then. Returns the
        ended sequences.
        """
        self.state.now_s = now_s
        late = self.state.deadlines.take_late(self.state.sequences, now_s)
        for sequence in late:
            end_sequence(self.state, sequence, "timeout")
        return late

    def schedule(self, max_rounds: int = 1) -> StepPlan | None:
        """Decide the next step: running decodes, chunks of prompts, admissions. None: nothing can run.

        While nobody waits, rows draw up to `max_rounds` tokens each, one after the other, before the step returns.
        """
        if self.num_in_flight > 1:
            raise RuntimeError("two steps are in flight: commit the older one before planning another")
        plan = self._plan(max_rounds)
        while plan is None and preempt_paused_beam(self.state):
            plan = self._plan(max_rounds)
        return plan

    def _plan(self, max_rounds: int) -> StepPlan | None:
        state = self.state
        rows = StepRows(state.limits.max_num_batched_tokens)
        requeue_deferred(state)
        decodes = schedule_decodes(state, rows)
        admit_ahead(state, rows)
        num_reserved = num_joining(state)
        schedule_chunks(state, rows, num_reserved)
        admit(state, rows)
        if num_reserved:
            schedule_chunks(state, rows, 0)  # with what has been left, for others may have gone ahead of those
        decodes = decodes[state.slot_table.is_running[decodes]]
        if rows.new_slots:  # perhaps some of those that decoding sequences have just lost
            decodes = decodes[~np.isin(decodes, rows.new_slots)]
        if not len(decodes) and not rows.slots:
            return None
        return build_plan(state, self._buckets, decodes, rows, plan_rounds(state, decodes, rows, max_rounds))

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> TokenDeltas:
        """Record what a step produced; steps are committed in the order in which they were planned."""
        return commits.commit(self.state, plan, outcome)

    def reset_prefix_cache(self) -> None:
        """Forget the prefixes of sequences that have ended; those that run keep their pages."""
        if self.state.prefixes is not None:
            self.state.prefixes.clear()

    @property
    def swap_cost(self) -> SwapCost:
        return self.state.swap_cost

    @property
    def load(self) -> QueueLoad:
        return QueueLoad.of(self.state)

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended yet."""
        return bool(self.state.sequences)

    @property
    def waits_for_host(self) -> bool:
        """Whether nothing can be planned before the host has called `branch`."""
        return bool(self.state.beams) and num_paused(self.state) == len(self.state.sequences)

    @property
    def is_mostly_synchronous(self) -> bool:
        """Over half of the running sequences need their token at the host before the next: overlap gains nothing."""
        slot_table = self.state.slot_table
        return 2 * int(np.count_nonzero(slot_table.is_running & slot_table.is_synchronous)) > self.num_running

    @property
    def num_in_flight(self) -> int:
        """Steps planned and not committed."""
        return self.state.num_planned - self.state.num_committed

    @property
    def num_running(self) -> int:
        return int(np.count_nonzero(self.state.slot_table.is_running))

    @property
    def num_waiting(self) -> int:
        """Sequences that have not ended and do not run, spare beams not counted."""
        spare = sum(beam.is_paused and beam.candidates is None for beam in self.state.beams.values())
        return len(self.state.sequences) - spare - self.num_running

    @property
    def num_preemptions(self) -> int:
        return self.state.num_preemptions

    @property
    def num_pages_free(self) -> int:
        return self.state.pool.num_free

    @property
    def num_pages_cached(self) -> int:
        """Pages that hold a prefix and that no sequence holds."""
        return self.state.pool.num_cached

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that sequences took over from the prefix cache."""
        return 0 if self.state.prefixes is None else self.state.prefixes.num_hit

    @property
    def num_pages_held(self) -> list[int]:
        """Pages held in each KV group; a page that forks share counts once."""
        slot_table = self.state.slot_table
        is_held = [
            np.arange(t.shape[1]) < n[:, None]
            for t, n in zip(slot_table.page_tables, slot_table.num_pages, strict=True)
        ]
        return [len(np.unique(t[held])) for t, held in zip(slot_table.page_tables, is_held, strict=True)]
