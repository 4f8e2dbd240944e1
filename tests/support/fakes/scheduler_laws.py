"""Invariants of pages, slots and queues, checked on a scheduler's state at any time, and a fuzz that exercises it."""

from collections import Counter

import numpy as np

from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.core.device_ops import Forks, PageDrops
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.sequence import Sequence, Status
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.host_tier import HostTier
from jaxserve.runner.fake.fake_model import FakeModel
from jaxserve.scheduler.memory.prefix_sharing import num_deferred
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.queue_limits import QueueLoad
from jaxserve.scheduler.speculation import DraftPlan
from jaxserve.scheduler.state import SchedulerState
from tests.support.fakes.cached_pages import kept_pages, used_host_pages
from tests.support.fakes.fake_engine import MODEL, SimulatedClock, make_request, naive, naive_logprobs, naive_pooled

AGEING_S = 10.0
TENANTS = ("a", "a", "a", "b", "c")


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


def check_pages(state: SchedulerState) -> None:
    """Every page is free, cached, or referenced as often as tables name it; tables name no other pages."""
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
    assert (named == pool.references(slice(None))).all(), "references differ from the tables"
    assert named[0] == 0, "the scratch page is referenced"
    num_deferred = np.count_nonzero(pool.references(slice(None)))
    kept = np.zeros(0, np.int32) if state.prefix_cache is None else kept_pages(state.prefix_cache)
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
    found |= dict.fromkeys(paused, Status.PAUSED) | dict.fromkeys(preparing, Status.WAITING_GRAMMAR)
    assert all(sequence.status is status for sequence, status in found.items())


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


class RandomRounds:
    """Replaces `MultiStepBudget`: one round, several, or the most, at random."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    @property
    def num_rounds(self) -> int:
        return int(self._random.choice([1, 2, 5, MAX_ROUNDS]))

    def observe(self, num_rounds: int, device_s: float) -> None:
        assert num_rounds >= 1


class RandomDrafts:
    """Replaces `Speculation`: no drafts in some steps, in others drafts of some rows, in a bucket of any width."""

    def __init__(self, seed: int):
        self._random = np.random.default_rng(seed)

    def choose(self, slot_table, slots, decode, verify) -> DraftPlan | None:
        if not verify or self._random.random() < 0.2:
            return None
        bucket = verify[self._random.integers(len(verify))]
        drafts = self._random.integers(0, bucket.max_drafts + 1, len(slots))
        max_drafts = np.where(slot_table.may_draft[slots], drafts, 0).astype(np.int32)
        proposers = self._random.integers(0, 2, len(slots)).astype(np.int32)
        return DraftPlan(bucket, max_drafts, bool(self._random.integers(2)), proposers) if max_drafts.any() else None

    def observe(self, plan, outcome, device_s) -> None:
        assert (outcome.drafts is not None) == plan.bucket.is_verify


class Fuzz:
    """Random requests, aborts and ends between steps; afterwards every output is compared with the naive loop."""

    def __init__(
        self,
        engine: Engine,
        seed: int,
        *,
        abort_share: float = 0.5,
        longest: int = 30,
        max_operations_a_step: int = 4,
        max_quiet_steps: int = 1,
        model: FakeModel = MODEL,
        is_ample: bool = False,
    ):
        self.engine, self.model = engine, model
        self.clock = engine.clock = SimulatedClock()
        engine.multi_step, state = RandomRounds(seed), engine.scheduler.state
        if state.speculation is not None:
            state.speculation = RandomDrafts(seed)
        self.longest, self.abort_share, self.max_operations_a_step = longest, abort_share, max_operations_a_step
        self.max_quiet_steps = max_quiet_steps
        self.random = np.random.default_rng(seed)
        self.watch = Watch(engine, is_ample=is_ample)
        self.added: list[list[Sequence]] = []
        self.counts: Counter[str] = Counter()

    @property
    def num_operations(self) -> int:
        return self.counts.total() + self.watch.num_forks + self.engine.scheduler.stats.num_preemptions

    def run(self, num_operations: int) -> None:
        while self.num_operations < num_operations:
            for _ in range(self.random.integers(0, self.max_operations_a_step + 1)):
                self._operate()
                self.watch.check()
            for _ in range(self.random.integers(1, self.max_quiet_steps + 1)):
                self.engine.step()
                self.clock.now_s += 1
                self.watch.check()
        for _ in self.engine.drain():
            self.watch.check()

    def check_outputs(self) -> None:
        for sequence in (sequence for sequences in self.added for sequence in sequences):
            assert sequence.is_finished
            max_model_len = self.engine.scheduler.state.limits.max_model_len
            expected, reason = naive(sequence.request, sequence.index, model=self.model, max_model_len=max_model_len)
            if sequence.finish_reason in ("abort", "cut", "timeout"):
                assert sequence.token_ids == expected[: len(sequence.token_ids)], sequence
            else:
                assert (sequence.token_ids, sequence.finish_reason) == (expected, reason), sequence
                self._check_prompt_results(sequence)

    def _check_prompt_results(self, sequence: Sequence) -> None:
        request = sequence.request
        if sequence.prompt_logprobs is not None and sequence.finish_reason != "error":
            start = max(1, request.logprobs_start)
            entries = sequence.prompt_logprobs[start:]
            assert None not in entries, "a log-probability is missing"
            assert sequence.prompt_logprobs[:start] == [None] * start
            expected = naive_logprobs(request.prompt_token_ids.tolist(), start, model=self.model)
            assert np.allclose([entry.logprob for entry in entries], expected)
        if request.pooling is not None:
            assert np.allclose(sequence.pooled, naive_pooled(request, model=self.model), rtol=1e-5)

    def _operate(self) -> None:
        draw = self.random.random()
        if draw > self.abort_share:
            if QueueLoad.of(self.engine.scheduler.state).num_waiting < 12:
                self._add()
        elif draw < 0.01 and self.engine.scheduler.state.prefix_cache is not None:
            self.counts["reset"] += 1
            self.engine.scheduler.state.prefix_cache.clear()
        elif draw > self.abort_share / 2:
            self.counts["abort"] += 1
            recent = self.random.integers(max(0, len(self.added) - 8), len(self.added) + 1)
            self.engine.scheduler.abort(str(recent))  # running, waiting, ended, or unknown
        elif self.added:
            self.counts["finish"] += 1
            sequence = self._recent_sequence()
            keep = int(self.random.integers(0, len(sequence.token_ids) + 1))
            self.engine.scheduler.finish(sequence.sequence_id, "cut", keep)

    def _add(self) -> None:
        self.counts["add"] += 1
        draw = self.random
        if draw.random() < 0.25:
            self._add_sharing()
            return
        max_tokens = int(draw.integers(1, self.longest))
        special = draw.random() < 0.2
        params = {
            "n": int(draw.choice([1, 1, 1, 2, 5])),
            "min_tokens": int(draw.integers(0, max_tokens + 1)) if special else 0,
            "bad_words": ((5,), (7, 8), (9, 3, 4)) if special and draw.random() < 0.5 else (),
            "allowed_token_ids": range(40 - int(8 * draw.random())) if special and draw.random() < 0.5 else None,
            "ignore_eos": bool(special and draw.random() < 0.2),
        }
        if self.engine.scheduler.state.constraints is not None and draw.random() < 0.6:
            params["structured_outputs"] = {"regex": f"grammar {draw.integers(6)}"}
        number = len(self.added)
        prompt, salt = int(draw.integers(1, self.longest)), None
        if self.engine.scheduler.state.prefix_cache is not None and self.added and draw.random() < 0.7:
            prompt, salt = self._continuation(), str(draw.choice(["a", "b"])) if draw.random() < 0.1 else None
            params["skip_reading_prefix_cache"] = bool(draw.random() < 0.1)
        if self.engine.scheduler.state.limits.kv_policy is not None and draw.random() < 0.6:
            max_tokens = int(draw.integers(1, 4 * self.longest))
            params |= {"has_kv_policy": True, "min_tokens": min(params["min_tokens"], max_tokens)}
        params |= {"arrival_s": self.clock.now_s, "scheduling": self._scheduling()}
        request = make_request(str(number), prompt, max_tokens, seed=number, cache_salt=salt, **params)
        self.added.append(self.engine.add(request))

    def _add_sharing(self) -> None:
        """Requests of several kinds with a shared prefix."""
        draw, number = self.random, len(self.added)
        shared = draw.integers(1, MODEL.vocab_size, draw.integers(1, self.longest)).tolist()
        shared_len = int(draw.integers(1, len(shared) + 1))
        kinds = {
            "score": {"max_tokens": 0, "logprobs_start": shared_len, "prompt_logprobs": 0},
            "whole prompt": {"max_tokens": 0, "prompt_logprobs": 1},
            "mean": {"max_tokens": 0, "pooling": "mean"},
            "last": {"max_tokens": 0, "pooling": "last"},
            "text": {"max_tokens": 3},
            "texts": {"max_tokens": 5, "n": 2, "prompt_logprobs": 0, "logprobs_start": shared_len},
        }
        own_kind = str(draw.choice(list(kinds)))
        requests = []
        for k in range(draw.integers(1, 12)):
            kind = own_kind if draw.random() < 0.8 else str(draw.choice(list(kinds)))
            prompt = shared + draw.integers(1, MODEL.vocab_size, draw.integers(0, 9)).tolist()
            name = f"{number}.{k}" if k else str(number)
            own = kinds[kind] | {"arrival_s": self.clock.now_s, "scheduling": self._scheduling()}
            requests.append(make_request(name, prompt, seed=1000 * number + k, **own))
        self.counts["add"] += len(requests) - 1
        self.added.append(self.engine.scheduler.add_sharing(requests, shared_len))

    def _scheduling(self) -> SchedulingOptions:
        """Random values of the fields that the policy uses, and time limits if it uses any."""
        draw, fields = self.random, self.engine.scheduler.state.policy.fields
        if not fields:
            return DEFAULT_SCHEDULING
        return SchedulingOptions(
            priority=int(draw.choice([0, 0, 1, -2, 7])),
            tenant=str(draw.choice(TENANTS)) if "tenant" in fields and draw.random() < 0.8 else None,
            queue_timeout_s=float(draw.integers(1, 60)) if draw.random() < 0.2 else None,
            deadline_s=float(draw.integers(1, 60)) if draw.random() < 0.2 else None,
        )

    def _continuation(self) -> list[int]:
        """A prefix of a recent sequence, and other tokens after it."""
        tokens = self._recent_sequence().tokens.tolist()
        num_kept = int(self.random.integers(0, min(len(tokens), self.longest) + 1))
        return tokens[:num_kept] + self.random.integers(1, MODEL.vocab_size, self.random.integers(1, 9)).tolist()

    def _recent_sequence(self) -> Sequence:
        sequences = self.added[self.random.integers(max(0, len(self.added) - 8), len(self.added))]
        return sequences[self.random.integers(len(sequences))]
