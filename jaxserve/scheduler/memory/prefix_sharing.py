"""Host: shared prefixes of running requests: one sequence computes the prefix, the others are deferred and then fork.

Samples of one request share its prompt, requests added together as many tokens as the caller states, and beams of one
parent (`beams`) all of its tokens. No sequence leads permanently: the one at the head of the queue forks from a running
sequence that has the shared pages, is deferred while a running sequence computes them, or computes them itself.
"""

from itertools import islice

from jaxserve.core.sequence import Sequence, Status
from jaxserve.scheduler.logit_edits import has_penalties
from jaxserve.scheduler.memory.fork import ForkSource
from jaxserve.scheduler.state import PrefixGroup, SchedulerState


def fork_source(state: SchedulerState, sequence: Sequence) -> ForkSource | None:
    """A slot from which a waiting sequence can fork: the one that started last, as it runs longest."""
    prefix_group = _joinable(state, sequence)
    if prefix_group is None:
        return None
    start = min(prefix_group.shared_len, state.num_skippable(sequence))
    for other in reversed(prefix_group.running):
        has_pages = _has_pages(state, other.slot, prefix_group.shared_len, start)
        if has_pages and _has_counts(state, prefix_group, sequence, other):
            return ForkSource(other.slot, start)
    return None


def defer(state: SchedulerState, sequence: Sequence) -> bool:
    """Take a waiting sequence out of the queue if a running one is computing the prefix that they share."""
    prefix_group = _joinable(state, sequence)
    if prefix_group is None or not _is_computing(state, prefix_group):
        return False
    state.waiting.remove(sequence)
    sequence.status = Status.DEFERRED
    if prefix_group not in state.deferring:
        state.deferring.append(prefix_group)
    prefix_group.deferred[sequence.sequence_id] = sequence
    return True


def requeue_deferred(state: SchedulerState) -> None:
    """Return deferred sequences to the queue once their prefix has been submitted, or is no longer being computed."""
    for prefix_group in state.deferring.copy():
        if not _is_computing(state, prefix_group):
            for sequence in prefix_group.deferred.values():
                state.enqueue(sequence)
            prefix_group.deferred.clear()
            state.deferring.remove(prefix_group)


def num_deferred(state: SchedulerState) -> int:
    """Deferred sequences."""
    return sum(len(prefix_group.deferred) for prefix_group in state.deferring)


def num_joining(state: SchedulerState) -> int:
    """Sequences at the head of the queue that can fork now: each needs a token of this step's budget."""
    if not state.prefix_groups:
        return 0
    heads = islice(state.waiting, len(state.slot_table.free_slots))
    return sum(fork_source(state, sequence) is not None for sequence in heads)


def _joinable(state: SchedulerState, sequence: Sequence) -> PrefixGroup | None:
    """The sequence's group, unless it needs more than the KV of the shared tokens, or computes only part of them."""
    prefix_group = state.prefix_groups.get(sequence.sequence_id)
    if prefix_group is None or sequence.request.pooling is not None:
        return None
    if prefix_group.shared_len > state.limits.max_computed(sequence.request):
        return None
    policy = state.kv_policy_of(sequence.request)
    if policy is not None and policy.capacity <= prefix_group.shared_len:
        return None  # the sequence that computes it drops pages meanwhile
    unscored = sequence.first_unscored
    return prefix_group if unscored is None or unscored >= prefix_group.shared_len else None


def _is_computing(state: SchedulerState, prefix_group: PrefixGroup) -> bool:
    """Whether a running sequence has not submitted all shared tokens yet, and will."""
    slot_table, shared_len = state.slot_table, prefix_group.shared_len
    slots = [sequence.slot for sequence in prefix_group.running]
    return any(slot_table.num_scheduled[s] < shared_len <= slot_table.max_computed[s] for s in slots)


def _has_pages(state: SchedulerState, slot: int, shared_len: int, start: int) -> bool:
    """Whether the slot's steps so far write all shared positions, and it holds the pages that `start` sees."""
    slot_table, groups = state.slot_table, state.groups
    if slot_table.last_step[slot] < 0 or slot_table.num_scheduled[slot] < shared_len:
        return False  # the pages of a fork of this very step are not written yet
    firsts = [groups.first_page(g, start) for g in range(groups.num_groups)]
    return bool((slot_table.first_pages[:, slot] <= firsts).all())


def _has_counts(state: SchedulerState, prefix_group: PrefixGroup, sequence: Sequence, other: Sequence) -> bool:
    """Whether penalty counts, which are copied too, hold the shared tokens and none of the other sequence's own."""
    if not has_penalties(sequence.request):
        return True
    is_same = other.request is sequence.request
    return is_same and bool(state.slot_table.num_scheduled[other.slot] == prefix_group.shared_len)
