"""Host: `Scheduler`: the life cycle of requests: add, abort, finish, schedule and commit; independent of the runner.

`schedule` may run while the step before is in flight; `commit` takes outcomes in order. The pipeline is one step deep:
at most one plan is uncommitted when `schedule` is called.
"""

import numpy as np

from jaxserve.core.buckets import Buckets
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.core.token_deltas import TokenDeltas
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.eviction_policies import EVICTION_POLICIES
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.kv_policy import KVPolicy
from jaxserve.kv.prefix_cache import PrefixCache
from jaxserve.scheduler.adapters.adapter_gate import AdapterGate, AdapterSource
from jaxserve.scheduler.adapters.adapter_places import AdapterPlaces
from jaxserve.scheduler.beams import Choice, add_beams, branch, preempt_paused_beam
from jaxserve.scheduler.commit import commit
from jaxserve.scheduler.constraints import Constraints, GrammarMatchers
from jaxserve.scheduler.costs.swap_cost import SwapCost
from jaxserve.scheduler.earlier_outputs import EarlierOutputs
from jaxserve.scheduler.mask_rows import MaskRows
from jaxserve.scheduler.memory.kept_kv import make_drops
from jaxserve.scheduler.memory.prefix_sharing import num_joining, requeue_deferred
from jaxserve.scheduler.memory.slots import end_sequence
from jaxserve.scheduler.new_sequences import enqueue_new, enqueue_prepared, take_unprepared
from jaxserve.scheduler.policy.policies import FirstComeFirstServed
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, queue_cost
from jaxserve.scheduler.request_checks import check_adapters, check_ids, check_shared_prefix
from jaxserve.scheduler.speculation import Speculation
from jaxserve.scheduler.state import PrefixGroup, SchedulerState, StepRows
from jaxserve.scheduler.stats import SchedulerStats, collect_stats
from jaxserve.scheduler.step.build_plan import build_plan
from jaxserve.scheduler.step.decode_rows import schedule_decodes
from jaxserve.scheduler.step.forced_rows import forced_rows, lengthen_forced
from jaxserve.scheduler.step.late_rows import late_draw
from jaxserve.scheduler.step.multi_step import plan_rounds
from jaxserve.scheduler.step.prefill_chunks import schedule_chunks
from jaxserve.scheduler.step.start_waiting import start_ahead, start_waiting
from jaxserve.scheduler.step_limits import StepLimits, check_token_budget


class Scheduler:
    """Continuous batching under a token budget, over a pool of `num_pages` pages (the scratch page included).

    max_chunk_tokens: the longest chunk of a prompt in one step; None: the whole budget. policy: by default first come,
    first served. queue_limits: how much may wait, for `check`. prefix_eviction: the eviction policy of the prefix
    cache; None: no prefix cache. num_host_pages: pages of host memory for evicted prefixes. swap_cost: whether to load
    those, from the durations that `observe` reports. speculation: None: no drafts. earlier_outputs: that rows draft
    from; None: from none. num_draft_masks: masks of drafts that a step may need; 0: rows with a grammar do not draft.
    kv_policy: of the requests that say so; None: none may. matchers: of grammars; None: no request may have one.
    adapters: in host memory; None: no request may have one. max_loras: adapters on the device; max_adapter_pages: of
    the largest of them.

    state: all sequences and pages.
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
        speculation: Speculation | None = None,
        earlier_outputs: EarlierOutputs | None = None,
        num_draft_masks: int = 0,
        kv_policy: KVPolicy | None = None,
        matchers: GrammarMatchers | None = None,
        adapters: AdapterSource | None = None,
        max_loras: int = 0,
        max_adapter_pages: int = 0,
    ):
        chunk = min(max_chunk_tokens or max_num_batched_tokens, max_num_batched_tokens)
        limits = StepLimits(
            max_num_seqs, max_num_batched_tokens, chunk, max_model_len, vocab_size, kv_policy, num_draft_masks > 0
        )
        longest = max_model_len if kv_policy is None else kv_policy.max_len
        check_token_budget(max_num_seqs, max_num_batched_tokens)
        limits.check_pages(groups, num_pages, max_adapter_pages)
        self.queue_limits = queue_limits or QueueLimits()
        self.queue_limits.check_len(max_model_len)
        pool, cache = PagePool(num_pages), None
        host_tier = HostTier(num_host_pages, groups.num_groups) if num_host_pages else None
        if prefix_eviction is not None:
            cache = PrefixCache(pool, groups, EVICTION_POLICIES[prefix_eviction](), host_tier)
        self.state = SchedulerState(
            limits=limits,
            groups=groups,
            policy=policy or FirstComeFirstServed(),
            pool=pool,
            slot_table=SlotTable(max_num_seqs, longest, groups, groups.table_widths(max_model_len, chunk)),
            prefix_cache=cache,
            connector=host_tier,
            swap_cost=swap_cost or SwapCost(),
            mask_rows=MaskRows(max_num_seqs + num_draft_masks),
            speculation=speculation,
            earlier_outputs=earlier_outputs,
            constraints=None if matchers is None else Constraints(matchers),
            adapters=None if adapters is None else AdapterPlaces(pool, AdapterGate(adapters), max_loras),
        )
        self._buckets = buckets
        self._num_added = 0

    def check(self, requests: list[Request]) -> None:
        """Raise `QueueFullError`, or `RequestError` for more than an empty queue takes, unless the queue has room.

        The caller that admits requests checks them once; the methods that add requests do not check again.
        """
        self.queue_limits.check(QueueLoad.of(self.state), *queue_cost(requests))

    def add(self, request: Request) -> list[Sequence]:
        """Queue a request, one sequence per sample. Raises `RequestError` without having changed anything."""
        return self.add_sharing([request], len(request.prompt_token_ids))

    def add_sharing(self, requests: list[Request], shared_len: int) -> list[Sequence]:
        """Queue requests whose prompts are equal in their first `shared_len` tokens, which are computed once.

        They are computed again only if no sequence with their pages runs when the next one gets its slot. Returns one
        sequence per sample in the order of the requests. Raises `RequestError` without having changed anything.
        """
        check_ids(self.state, requests)
        check_adapters(self.state, requests)
        check_shared_prefix(requests, shared_len)
        sequences = self._register([(request, i) for request in requests for i in range(request.params.num_sequences)])
        prefix_group = PrefixGroup(shared_len)
        for sequence in sequences:
            enqueue_new(self.state, sequence)
            if len(sequences) > 1:
                self.state.prefix_groups[sequence.sequence_id] = prefix_group
        return sequences

    def add_beams(self, request: Request, width: int, num_candidates: int) -> list[Sequence]:
        """Queue a request whose tokens the host chooses by `branch`, in up to `width` beams at a time.

        Returns the beams: the first has the prompt, the others are spare. They end by `abort` or in an error.
        """
        check_ids(self.state, [request])
        check_adapters(self.state, [request])
        beams = self._register([(request, i) for i in range(width)])
        add_beams(self.state, beams, num_candidates)
        return beams

    def candidates(self, beam: Sequence) -> TokenLogprobs | None:
        """The likeliest tokens after a beam; None until they are computed."""
        return self.state.beams[beam.sequence_id].candidates

    def branch(self, request_id: str, choices: list[Choice]) -> list[Sequence]:
        """Give a request's beams their next tokens, once all have candidates; returns the beam of each choice.

        One beam may be chosen with several tokens. Beams that no choice names give their pages back and become spare.
        """
        return branch(self.state, self.state.requests[request_id].copy(), choices)

    def _register(self, samples: list[tuple[Request, int]]) -> list[Sequence]:
        """New sequences of (request, index of the sample), numbered in this order."""
        state = self.state
        sequences = [Sequence(self._num_added + k, *sample) for k, sample in enumerate(samples)]
        self._num_added += len(sequences)
        for sequence in sequences:
            state.requests.setdefault(sequence.request.request_id, []).append(sequence)
            state.sequences[sequence.sequence_id] = sequence
            state.policy.on_add(sequence)
            state.deadlines.watch(sequence)
        return sequences

    def abort(self, request_id: str) -> None:
        """End all samples of a request, at any moment; a request that is unknown or has ended is ignored."""
        for sequence in self.state.requests.get(request_id, []).copy():
            end_sequence(self.state, sequence, "abort")

    def abort_all(self, reason: str) -> None:
        """End every request with this finish reason."""
        for sequence in list(self.state.sequences.values()):
            end_sequence(self.state, sequence, reason)

    def finish(self, sequence_id: int, reason: str, keep_tokens: int, stop_reason: int | str | None = None) -> None:
        """End one sequence after its first `keep_tokens` generated tokens; one that has ended is ignored."""
        sequence = self.state.sequences.get(sequence_id)
        if sequence is not None:
            end_sequence(self.state, sequence, reason, stop_reason, keep_tokens)

    def expire(self, now_s: float) -> list[Sequence]:
        """End and return the sequences whose queue timeout or deadline has passed; they keep their tokens. Likewise
        those whose adapter cannot be read.

        now_s: on the clock of the arrival times; a sequence that gets a slot before the next call starts at `now_s`.
        """
        self.state.now_s = now_s
        late = self.state.deadlines.take_late(self.state.sequences, now_s)
        for sequence in late:
            end_sequence(self.state, sequence, "timeout")
        failed = take_unprepared(self.state)
        for sequence, reason in failed:
            end_sequence(self.state, sequence, "error", reason)
        return late + [sequence for sequence, _ in failed]

    def schedule(self, max_rounds: int = 1, max_hidden_rounds: int = 1) -> StepPlan | None:
        """Decide the next step: decode rows, chunks of running prompts, first chunks of waiting ones.

        Returns None if nothing can run. While no sequence waits, each row draws up to `max_rounds` tokens before the
        step returns; where rows draw late, these draw one, and the others up to `max_hidden_rounds`.
        """
        if self.num_in_flight > 1:
            raise RuntimeError("two steps are in flight: commit the older one before planning another")
        plan = self._plan(max_rounds, max_hidden_rounds)
        while plan is None and preempt_paused_beam(self.state):
            plan = self._plan(max_rounds, max_hidden_rounds)
        return plan

    def _plan(self, max_rounds: int, max_hidden_rounds: int) -> StepPlan | None:
        state = self.state
        rows = StepRows(state.limits.max_num_batched_tokens)
        make_drops(state)
        requeue_deferred(state)
        enqueue_prepared(state)
        rows.forced = forced_rows(state)
        decodes = schedule_decodes(state, rows)
        start_ahead(state, rows)
        num_withheld = num_joining(state)
        schedule_chunks(state, rows, num_withheld)
        start_waiting(state, rows)
        if num_withheld:
            schedule_chunks(state, rows, 0)  # with the tokens left, as others may have started instead
        decodes = decodes[state.slot_table.is_running[decodes]]
        if rows.new_slots:  # may include slots that decoding sequences have just lost
            decodes = decodes[~np.isin(decodes, rows.new_slots)]
        if len(rows.forced):
            decodes = lengthen_forced(state, self._buckets, decodes, rows, has_rounds=max_hidden_rounds > 1)
        if not len(decodes) and not rows.slots:
            return None
        rounds = plan_rounds(state, self._buckets, decodes, rows, max_rounds, max_hidden_rounds)
        return build_plan(state, self._buckets, decodes, rows, rounds)

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> TokenDeltas:
        """Record what a step produced; steps are committed in the order in which they were planned."""
        return commit(self.state, plan, outcome)

    def late_draw(self, plan: StepPlan, drafts: list[list[int]] | None = None) -> LateDraw:
        """How the late rows of a plan draw; the steps before it are committed. drafts: of these rows, in their order;
        None: they have none."""
        return late_draw(self.state, plan, drafts)

    def observe(self, plan: StepPlan, outcome: StepOutcome, device_s: float) -> None:
        """Record a committed step that occupied the device for `device_s` seconds."""
        self.state.swap_cost.observe(plan.num_tokens, plan.num_decodes, device_s)
        self.state.forced_chunks.observe(plan, outcome.num_rounds, device_s)
        if self.state.speculation is not None:
            self.state.speculation.observe(plan, outcome, device_s)

    def reset_prefix_cache(self) -> None:
        """Forget the prefixes of ended sequences; running sequences keep their pages."""
        if self.state.prefix_cache is not None:
            self.state.prefix_cache.clear()

    @property
    def stats(self) -> SchedulerStats:
        """Counts of this moment."""
        return collect_stats(self.state)

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return bool(self.state.sequences)

    @property
    def waits_for_host(self) -> bool:
        """Whether nothing can be planned before the host calls `branch`."""
        return bool(self.state.beams) and self.state.num_paused == len(self.state.sequences)

    @property
    def is_preparing(self) -> bool:
        """Whether nothing can be planned before a grammar is compiled or an adapter is read."""
        num_preparing = len(self.state.preparing)
        return num_preparing > 0 and num_preparing + self.state.num_paused == len(self.state.sequences)

    @property
    def is_mostly_beams(self) -> bool:
        """Whether the host chooses the tokens of over half of the running sequences: overlap gains nothing then."""
        slot_table = self.state.slot_table
        return 2 * int(np.count_nonzero(slot_table.is_running & slot_table.is_beam)) > self.state.num_running

    @property
    def num_in_flight(self) -> int:
        """Steps planned and not committed."""
        return self.state.num_planned - self.state.num_committed
