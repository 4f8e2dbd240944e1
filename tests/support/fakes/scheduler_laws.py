"""Invariants of pages, slots and queues, checked on a scheduler's state at any time."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from jaxserve.core.device_ops import Forks, PageDrops
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.sequence import Sequence, Status
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.host_tier import HostTier
from jaxserve.scheduler.adapters.adapter_places import Place
from jaxserve.scheduler.memory.prefix_sharing import num_deferred
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.state import SchedulerState
from tests.support.fakes.cached_pages import kept_pages, used_host_pages

AGEING_S = 10.0
ADAPTER = SAMPLING_INDEX["adapter"]


class Watch:
    """Wraps an engine's runner: records the plans in flight, and checks each as it is submitted.

    is_ample: the pool is so large that no sequence ever waits for a page.
    """

    def __init__(self, engine: Engine, *, is_ample: bool = False):
        self.runner, self.state, self.is_ample = engine.runner, engine.scheduler.state, is_ample
        self.running: set[Sequence] = set()  # with the last plan
        self.in_flight: list[tuple[StepPlan, np.ndarray]] = []  # plans, and what they may write: page, slot, end
        self.num_forks = self.num_tokens = self.num_steps = self.num_rounds = 0
        self.num_drafts = self.num_accepted = self.num_drops = self.num_late = 0
        self.num_hidden_steps = self.num_forced_with_drafts = 0
        engine.runner = self

    def submit(self, plan: StepPlan) -> int:
        assert plan.num_tokens <= self.state.limits.max_num_batched_tokens
        assert plan.query_lens.max() <= self.state.limits.max_chunk_tokens
        assert len(set(plan.slots.tolist())) == plan.num_rows
        self.num_forks += sum(len(forks.dst_slots) for forks in plan.ops_of(Forks))
        for drops in plan.ops_of(PageDrops):
            self.num_drops += len(drops.groups)
            # These pages return at once: what takes them is dispatched after the copies of what remains of them.
            gone = drops.rest_pages
            self.in_flight = [(other, of[:, ~np.isin(of[0], gone)]) for other, of in self.in_flight]
        self.num_tokens += int(plan.max_computed.sum())
        self.num_steps += 1
        self.num_rounds += plan.num_rounds
        self.num_hidden_steps += plan.num_rounds > 1 and len(plan.late_rows) > 0
        self.num_forced_with_drafts += plan.bucket.is_verify and not plan.samples.all()
        self.in_flight.append((plan, self._written(plan)))
        self.check()
        running = {self.state.occupant(slot) for slot in np.flatnonzero(self.state.slot_table.is_running)}
        check_overtaking(self.state, running - self.running)
        self.running = running
        if self.is_ample:
            self._check_none_waits(plan)
        return self.runner.submit(plan)

    def _written(self, plan: StepPlan) -> np.ndarray:
        size, slot_table = self.state.groups.page_size, self.state.slot_table
        starts, ends = slot_table.num_computed[plan.slots], slot_table.num_scheduled[plan.slots]
        if self.state.speculation is None:
            starts = ends - plan.max_computed
        written = []
        for g, table in enumerate(plan.tables):
            for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                first = plan.first_pages[g, row]
                columns = np.arange(max(start // size, first), (end - 1) // size + 1)
                slots = np.full_like(columns, plan.slots[row])
                written.append(np.stack([table[row, columns - first], slots, (columns + 1) * size]))
        return np.concatenate(written, axis=1)

    def _check_none_waits(self, plan: StepPlan) -> None:
        """Free slots and tokens are used in the very step in which they are available."""
        slot_table, is_full = self.state.slot_table, plan.num_tokens == self.state.limits.max_num_batched_tokens
        is_free = len(slot_table.free_slots) > num_deferred(self.state)
        assert is_full or not is_free or not len(self.state.waiting), "a free slot was left unused"
        for slot in set(np.flatnonzero(slot_table.is_running).tolist()) - set(plan.slots.tolist()):
            pending = slot_table.num_tokens[slot] - slot_table.num_scheduled[slot]
            will_end = slot_table.num_scheduled[slot] == slot_table.max_computed[slot]
            waits_for_token = pending == 0 and slot_table.is_beam[slot]
            assert will_end or waits_for_token or (pending > 1 and is_full), "a running sequence got no token"

    def has_run(self, ticket: int) -> bool:
        return self.runner.has_run(ticket)

    def late_drafts(self, ticket: int) -> list[list[int]]:
        return self.runner.late_drafts(ticket)

    def draw(self, ticket: int, late: LateDraw) -> int:
        self.num_late += len(self.in_flight[0][0].late_rows)
        return self.runner.draw(ticket, late)

    def collect(self, ticket: int) -> StepOutcome:
        outcome = self.runner.collect(ticket)
        self.in_flight.pop(0)
        if outcome.drafts is not None:
            self.num_drafts += int(outcome.drafts.num_proposed.sum())
            self.num_accepted += int(outcome.drafts.num_accepted.sum())
        return outcome

    def check(self) -> None:
        check_pages(self.state)
        check_host_pages(self.state)
        check_slots(self.state)
        check_masks(self.state)
        check_adapters(self.state)
        check_policy(self.state)
        for plan, (pages, slots, ends) in self.in_flight:
            occupants = map(self.state.slot_table.sequences.__getitem__, plan.slots.tolist())
            assert None not in occupants, "a slot returned before the commit of its last step"
            # Rows start where the step before ends: with drafts only its commit says where.
            pages = pages[ends > self.state.slot_table.num_computed[slots]]
            policy = self.state.limits.kv_policy
            dropped = [] if policy is None else [rest_page for _, _, rest_page, _, _ in policy.drops]
            pages = pages[~np.isin(pages, dropped)]
            assert self.state.pool.references(pages).all(), "a page returned before the last write to it"


def check_masks(state: SchedulerState) -> None:
    """Mask rows are referenced as often as slots name them."""
    table = state.slot_table
    occupied = [slot for slot, sequence in enumerate(table.sequences) if sequence is not None]
    named = table.sampling[occupied, SAMPLING_INDEX["mask_row"]].tolist()
    assert state.mask_rows.references == Counter(row for row in named if row), "a mask row has other references"


def check_adapters(state: SchedulerState) -> None:
    """Places have as many users as slots name them, each adapter one place, and each page one adapter."""
    if (adapters := state.adapters) is None:
        assert not state.slot_table.sampling[:, ADAPTER].any()
        return
    occupants = [(slot, sequence) for slot, sequence in enumerate(state.slot_table.sequences) if sequence is not None]
    named = {slot: int(state.slot_table.sampling[slot, ADAPTER]) for slot, _ in occupants}
    for slot, sequence in occupants:
        held = adapters.places[named[slot]].adapter if named[slot] else None
        assert held == sequence.request.adapter, "a place in use has another adapter"
    users = Counter(named.values())
    assert all(place.num_users == users[number] for number, place in adapters.places.items())
    ids = [place.adapter.adapter_id for place in adapters.places.values()]
    assert len(ids) == len(set(ids)) <= adapters.num_places
    assert all(1 <= number <= adapters.num_places for number in adapters.places)
    pages = adapter_pages(state, lambda place: True)
    assert len(pages) == len(set(pages.tolist())) == adapters.num_pages
    assert adapters.num_idle_pages == len(adapter_pages(state, lambda place: not place.num_users))


def adapter_pages(state: SchedulerState, chosen: Callable[[Place], bool]) -> np.ndarray:
    """The pages of chosen adapters on the device."""
    places = [] if state.adapters is None else state.adapters.places.values()
    found = [place.pages for place in places if chosen(place) and place.pages is not None]
    return np.concatenate([np.zeros(0, np.int32), *found])


def check_pages(state: SchedulerState) -> None:
    """Every page is free, cached, or referenced as often as tables name it, once more by an adapter in use; tables name
    no other pages."""
    pool, slot_table = state.pool, state.slot_table
    named = np.zeros(pool.num_pages, np.int64)
    for table, counts in zip(slot_table.page_tables, slot_table.num_pages, strict=True):
        is_held = np.arange(table.shape[1]) < counts[:, None]
        assert np.count_nonzero(table) == np.count_nonzero(is_held), (
            "a table names the scratch page or one past its end"
        )
        named += np.bincount(table[is_held], minlength=pool.num_pages)
    spares = slot_table.spare_pages[slot_table.spare_pages > 0]
    named += np.bincount(spares, minlength=pool.num_pages)
    assert not named[adapter_pages(state, lambda place: True)].any(), "a table names a page of an adapter"
    named[adapter_pages(state, lambda place: place.num_users > 0)] += 1
    assert (named == pool.references(slice(None))).all(), "references differ from the tables"
    assert named[0] == 0, "the scratch page is referenced"
    num_deferred = np.count_nonzero(pool.references(slice(None)))
    kept = np.zeros(0, np.int32) if state.prefix_cache is None else kept_pages(state.prefix_cache)
    kept = np.concatenate([kept, adapter_pages(state, lambda place: True)])
    assert sorted(kept.tolist()) == np.flatnonzero(pool.is_kept(slice(None))).tolist(), (
        "the cache lost or shares a page"
    )
    assert np.count_nonzero(named[kept] == 0) == pool.num_cached, "cached pages are miscounted"
    named[kept[named[kept] == 0]] += 1
    named[pool.free_pages] += 1
    assert named[1:].all(), "a page is lost"
    assert (named[pool.free_pages] == 1).all(), "a page is free twice, or free and referenced or cached"
    assert num_deferred == pool.num_referenced
    assert pool.num_free + pool.num_cached + num_deferred == pool.num_pages - 1


def check_host_pages(state: SchedulerState) -> None:
    """Every page of host memory is free or belongs to one entry."""
    if isinstance(host := state.connector, HostTier):
        used = used_host_pages(host)
        assert len(used) == len(set(used)) == host.num_used <= host.num_pages
        assert all(1 <= page <= host.num_pages for page in used)


def check_slots(state: SchedulerState) -> None:
    """Each slot is free, running or leaving; each sequence that has not ended is in the one index of its status."""
    slot_table = state.slot_table
    occupied = {slot for slot, sequence in enumerate(slot_table.sequences) if sequence is not None}
    running: set[int] = set(np.flatnonzero(slot_table.is_running).tolist())
    assert occupied == running | set(state.leaving)
    assert sorted([*slot_table.free_slots, *running, *state.leaving]) == list(range(len(slot_table.sequences)))
    deferred = [sequence for prefix_group in state.deferring for sequence in prefix_group.deferred.values()]
    assert len(deferred) <= len(slot_table.free_slots), "a deferred sequence lost the slot that is kept for it"
    living = [sequence for sequence in slot_table.sequences if sequence is not None and not sequence.is_finished]
    paused = [sequence for sequence in state.sequences.values() if sequence.is_paused]
    unplaced = [sequence for sequence in paused if sequence.slot < 0]
    preparing = list(state.preparing.values())
    placed = [*living, *state.waiting, *deferred, *unplaced, *preparing]
    assert sorted(sequence.sequence_id for sequence in placed) == sorted(state.sequences)
    assert all(sequence.sequence_id in state.beams for sequence in paused)
    found = dict.fromkeys(state.waiting, Status.WAITING) | dict.fromkeys(deferred, Status.DEFERRED)
    found |= {sequence: Status.RUNNING if sequence.slot in running else Status.PREEMPTED for sequence in living}
    found |= dict.fromkeys(paused, Status.PAUSED)
    assert all(sequence.status is status for sequence, status in found.items())
    assert all(sequence.status in (Status.WAITING_GRAMMAR, Status.WAITING_ADAPTER) for sequence in preparing)


def check_policy(state: SchedulerState) -> None:
    """The queue counts its sequences and tokens, tenants their running sequences; keys of these are unique."""
    waiting = list(state.waiting)
    assert len(waiting) == len(state.waiting)
    assert state.waiting.num_tokens == sum(sequence.num_tokens for sequence in waiting)
    assert not waiting or state.waiting.first() in waiting
    running = [state.occupant(slot) for slot in np.flatnonzero(state.slot_table.is_running)]
    assert len({state.policy.key(sequence) for sequence in running}) == len(running)
    if isinstance(state.policy, FairShares):
        by_tenant = {id(tenant): tenant for tenant in map(state.policy.waiting.of, running)}.values()
        assert sum(len(tenant.running) for tenant in by_tenant) == len(running)
        living = Counter(id(state.policy.waiting.of(sequence)) for sequence in state.sequences.values())
        assert all(living[id(tenant)] == tenant.num_living for tenant in by_tenant)


def check_overtaking(state: SchedulerState, new: set[Sequence]) -> None:
    """A sequence that has just got a slot overtook only peers, for its cached prefix, and sequences that the policy
    serves later; tenants are independent of each other."""

    def standing(sequence: Sequence) -> tuple[float, int]:
        scheduling, ageing_s = sequence.request.scheduling, AGEING_S if "priority" in state.policy.fields else 0
        return sequence.request.arrival_s * bool(ageing_s) + scheduling.priority * ageing_s, sequence.sequence_id

    for sequence in new:
        scheduling = sequence.request.scheduling
        rivals = [w for w in state.waiting if w.request.scheduling.tenant == scheduling.tenant]
        ahead = [
            w
            for w in rivals
            if standing(w) < standing(sequence) and w.request.scheduling.priority != scheduling.priority
        ]
        assert not ahead, f"{sequence} overtook {ahead}"
