"""Host: `SchedulerState`, shared by the scheduler's modules, and `StepRows`, the rows of the step being planned."""

from dataclasses import dataclass, field

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.request import Request
from jaxserve.core.sequence import Sequence, Status, TokenLogprobs
from jaxserve.core.slot_table import SlotTable
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.kv_connector import KVConnector
from jaxserve.kv.kv_policy import KVPolicy
from jaxserve.kv.prefix_cache import PrefixCache, PrefixMatch
from jaxserve.scheduler.adapters.adapter_places import AdapterPlaces
from jaxserve.scheduler.constraints import Constraints
from jaxserve.scheduler.costs.forced_chunks import ForcedChunks
from jaxserve.scheduler.costs.swap_cost import SwapCost
from jaxserve.scheduler.deadlines import Deadlines
from jaxserve.scheduler.earlier_outputs import EarlierOutputs
from jaxserve.scheduler.mask_rows import MaskRows
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy, WaitingSequences
from jaxserve.scheduler.policy.waiting_queue import Key
from jaxserve.scheduler.speculation import Speculation
from jaxserve.scheduler.step_limits import StepLimits


@dataclass(slots=True, eq=False)
class PrefixGroup:
    """Sequences whose prompts are equal in their first `shared_len` tokens.

    running: those in running slots, in the order of their starts. deferred: those that wait while a running one
    computes the shared tokens, by sequence id.
    """

    shared_len: int
    running: list[Sequence] = field(default_factory=list[Sequence])
    deferred: dict[int, Sequence] = field(default_factory=dict[int, Sequence])


@dataclass(slots=True, eq=False)
class Beam:
    """A sequence whose tokens the host chooses.

    candidates: the likeliest tokens after its last one, `num_candidates` of them; None until they are computed, and for
    a spare beam.
    """

    num_candidates: int
    candidates: TokenLogprobs | None = None


@dataclass(slots=True)
class SchedulerState:
    """All sequences that have not ended, their slots and pages.

    `Sequence.status` says where a sequence is; the collections below are indices by status. A slot is free, running or
    leaving: a leaving slot had a row in flight when its sequence ended or was preempted, and slot and pages return at
    the commit of the last step that touches them.
    """

    limits: StepLimits
    groups: KVGroups
    policy: SchedulingPolicy
    pool: PagePool
    slot_table: SlotTable
    prefix_cache: PrefixCache | None  # None: pages of ended sequences are freed
    connector: KVConnector | None  # None: evicted pages are lost
    swap_cost: SwapCost
    mask_rows: MaskRows
    speculation: Speculation | None = None  # None: no drafts
    earlier_outputs: EarlierOutputs | None = None  # None: no drafts from them
    constraints: Constraints | None = None  # None: no grammars
    adapters: AdapterPlaces | None = None  # None: no request has one

    sequences: dict[int, Sequence] = field(default_factory=dict[int, Sequence])  # by sequence id, until they end
    requests: dict[str, list[Sequence]] = field(default_factory=dict[str, list[Sequence]])  # by request id
    prefix_groups: dict[int, PrefixGroup] = field(default_factory=dict[int, PrefixGroup])  # by sequence id
    deferring: list[PrefixGroup] = field(default_factory=list[PrefixGroup])  # groups with deferred sequences
    beams: dict[int, Beam] = field(default_factory=dict[int, Beam])  # by sequence id
    preparing: dict[int, Sequence] = field(default_factory=dict[int, Sequence])  # wait for a grammar or an adapter, by
    # sequence id
    leaving: list[int] = field(default_factory=list[int])  # slots
    matches: dict[int, PrefixMatch] = field(default_factory=dict[int, PrefixMatch])  # by id of waiting sequences
    banned: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])  # by slot, as last sent
    deadlines: Deadlines = field(default_factory=Deadlines)
    forced_chunks: ForcedChunks = field(default_factory=ForcedChunks)
    num_planned: int = 0  # steps planned so far: the id of the next one
    num_committed: int = 0
    last_drafting_step: int = -1  # of a verify bucket
    num_preemptions: int = 0
    now_s: float = 0.0  # on the clock of the requests' arrival times, as of the last `Scheduler.expire`

    @property
    def waiting(self) -> WaitingSequences:
        """The queue, in the order of the policy."""
        return self.policy.waiting

    @property
    def watermark(self) -> int:
        """Pages that starts leave free for the growth of running sequences: 1 % of the pool, at least one per group."""
        return max(self.groups.num_groups, self.pool.num_pages // 100)

    @property
    def num_idle_pages(self) -> int:
        """Pages without references: free ones, and cached ones, which can be evicted."""
        return self.pool.num_free + self.pool.num_cached

    @property
    def num_prefix_pages(self) -> int:
        """Cached pages that hold prefixes; the others hold adapters without users."""
        return self.pool.num_cached - (0 if self.adapters is None else self.adapters.num_idle_pages)

    @property
    def num_running(self) -> int:
        """Sequences in running slots."""
        return int(np.count_nonzero(self.slot_table.is_running))

    @property
    def num_paused(self) -> int:
        """Beams that wait for the host, spare beams included."""
        return sum(self.sequences[sequence_id].is_paused for sequence_id in self.beams)

    def enqueue(self, sequence: Sequence) -> None:
        """Add a sequence without a slot to the queue."""
        sequence.status = Status.WAITING
        self.waiting.add(sequence)

    def is_in_flight(self, slot: int) -> bool:
        """Whether a step with a row of this slot is not committed yet."""
        return bool(self.slot_table.last_step[slot] >= self.num_committed)

    def occupant(self, slot: int) -> Sequence:
        """The sequence in a slot that is not free."""
        sequence = self.slot_table.sequences[slot]
        assert sequence is not None
        return sequence

    def kv_policy_of(self, request: Request) -> KVPolicy | None:
        """What a request's sequences keep of their KV; None: all."""
        return self.limits.kv_policy if request.has_kv_policy else None

    def key(self, slot: int) -> Key:
        """The policy's key of the slot's sequence."""
        return self.policy.key(self.occupant(slot))

    def num_skippable(self, sequence: Sequence) -> int:
        """The most tokens that a sequence need not compute if their KV exists.

        The last input is always computed, and so is each token that precedes a log-probability asked for: both need
        hidden states. Under a KV policy sequences share the KV of others up to their first drop.
        """
        count = min(sequence.num_tokens, self.limits.max_computed(sequence.request)) - 1
        unscored = sequence.first_unscored
        if (policy := self.kv_policy_of(sequence.request)) is not None:
            count = min(count, policy.capacity - 1)
        return count if unscored is None else min(count, unscored - 1)


class StepRows:
    """Rows of the step being planned, in the order of the decisions.

    budget: tokens left. fork_pages, fork_slots: sources and copies of the step's forks. new_slots: slots assigned in
    this step. reservations: by slot, free and returning pages that a row of this step waits for; rows planned later do
    not take them. has_preempted: a running sequence was preempted for its pages. forced: int[N], slots of forced
    rows (`forced_rows.py`).
    """

    def __init__(self, budget: int):
        self.budget = budget
        self.slots: list[int] = []
        self.query_lens: list[int] = []
        self.fork_pages: list[tuple[np.ndarray, np.ndarray]] = []
        self.fork_slots: list[tuple[int, int]] = []
        self.new_slots: list[int] = []
        self.reservations: dict[int, int] = {}
        self.has_preempted = False
        self.forced = np.zeros(0, np.intp)

    def add(self, slot: int, query_len: int) -> None:
        """A row of `query_len` tokens."""
        self.slots.append(slot)
        self.query_lens.append(query_len)
        self.budget -= query_len

    @property
    def is_short(self) -> bool:
        """Whether running sequences lacked pages: then no sequence starts."""
        return self.has_preempted or bool(self.reservations)

    @property
    def num_reserved(self) -> int:
        """Pages reserved."""
        return sum(self.reservations.values())
