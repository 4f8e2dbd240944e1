"""Host: `SchedulerState`, what the parts of the scheduler share, and `StepRows`, the rows of the step being planned."""

from dataclasses import dataclass, field

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.sequence import Sequence, TokenLogprobs
from jaxserve.core.slot_table import SlotTable
from jaxserve.kv.allocator import PagePool
from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.prefix_cache import PrefixCache, PrefixMatch
from jaxserve.scheduler.deadlines import Deadlines
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy, WaitingSequences
from jaxserve.scheduler.policy.waiting_queue import Key
from jaxserve.scheduler.step_limits import StepLimits
from jaxserve.scheduler.swap_cost import SwapCost


@dataclass(slots=True, eq=False)
class PrefixGroup:
    """Sequences whose prompts are equal in their first `shared_len` tokens.

    running: those in running slots, in the order in which they came there. deferred: those that stand aside while one
    of the running computes the shared tokens, by sequence id.
    """

    shared_len: int
    running: list[Sequence] = field(default_factory=list)
    deferred: dict[int, Sequence] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class BeamState:
    """What `branches` knows of one beam.

    is_paused: it waits for the host, with its candidates or as a spare one. candidates: the likeliest tokens after its
    own, `num_candidates` of them; None while they are not known, and for a spare beam.
    """

    num_candidates: int
    is_paused: bool
    candidates: TokenLogprobs | None = None


@dataclass(slots=True)
class SchedulerState:
    """A sequence is in the queue, held back from it, parked without a slot, or in a slot; a slot is running or leaving.

    Leaving slots had a row in flight when their sequence ended or was preempted: slot and pages return at the commit of
    the last step that touches them.
    """

    limits: StepLimits
    groups: KVGroups
    policy: SchedulingPolicy
    pool: PagePool
    slot_table: SlotTable
    prefixes: PrefixCache | None  # None: nothing is kept of sequences that have ended
    host: HostTier | None  # None: what is evicted is lost
    swap_cost: SwapCost

    sequences: dict[int, Sequence] = field(default_factory=dict)  # by sequence id, until they end
    requests: dict[str, list[Sequence]] = field(default_factory=dict)  # by request id, until all have ended
    prefix_groups: dict[int, PrefixGroup] = field(
        default_factory=dict
    )  # by sequence id, of sequences that share their prefix
    deferring: list[PrefixGroup] = field(default_factory=list)  # those that hold sequences back
    beams: dict[int, BeamState] = field(
        default_factory=dict
    )  # by sequence id, of sequences whose tokens the host chooses
    leaving: list[int] = field(default_factory=list)
    matches: dict[int, PrefixMatch] = field(
        default_factory=dict
    )  # by id of sequences that were looked up, until they run
    banned: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by synchronous slot, as last sent to the device
    deadlines: Deadlines = field(default_factory=Deadlines)
    num_planned: int = 0  # steps planned so far: the next one's id
    num_committed: int = 0
    num_preemptions: int = 0
    now_s: float = 0.0  # on the clock by which requests arrive, as the scheduler was told last

    @property
    def waiting(self) -> WaitingSequences:
        """Sequences in the queue, in the order of service."""
        return self.policy.waiting

    @property
    def watermark(self) -> int:
        """Pages that admissions leave free for the growth of running sequences: one in a hundred, one a group."""
        return max(self.groups.num_groups, self.pool.num_pages // 100)

    @property
    def num_idle_pages(self) -> int:
        """Pages that nobody holds: free ones, and cached ones that would be evicted."""
        return self.pool.num_free + self.pool.num_cached

    def is_paused(self, sequence: Sequence) -> bool:
        """Whether the sequence is a beam that waits for the host."""
        beam = self.beams.get(sequence.sequence_id)
        return beam is not None and beam.is_paused

    def is_in_flight(self, slot: int) -> bool:
        """Whether a step with a row of this slot is yet to be committed."""
        return self.slot_table.last_step[slot] >= self.num_committed

    def occupant(self, slot: int) -> Sequence:
        sequence = self.slot_table.sequences[slot]
        assert sequence is not None
        return sequence

    def key(self, slot: int) -> Key:
        """The place of the slot's sequence in the order of service."""
        return self.policy.key(self.occupant(slot))


@dataclass(slots=True)
class StepRows:
    """Rows of the step being planned, in the order in which they were decided.

    reservations: free and returning pages that slots wait for, which asked before those still to be planned.
    has_preempted: pages were taken from a running sequence.
    """

    budget: int  # tokens left
    slots: list[int] = field(default_factory=list)
    query_lens: list[int] = field(default_factory=list)
    fork_pages: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    fork_slots: list[tuple[int, int]] = field(default_factory=list)
    new_slots: list[int] = field(default_factory=list)
    reservations: dict[int, int] = field(default_factory=dict)
    has_preempted: bool = False

    def add(self, slot: int, query_len: int) -> None:
        self.slots.append(slot)
        self.query_lens.append(query_len)
        self.budget -= query_len

    @property
    def is_short(self) -> bool:
        """Running sequences lacked pages, hence nothing new may start."""
        return self.has_preempted or bool(self.reservations)

    @property
    def num_reserved(self) -> int:
        return sum(self.reservations.values())
