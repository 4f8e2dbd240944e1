"""Host: sequences that begin alike: one computes what they share, the others are held back and then join it.

Samples of one request share its prompt, requests that were added together as many tokens as the caller says, and beams
of one parent (`branches`) all of its tokens. Nobody leads for good: whoever comes to the head of the queue takes the
shared pages from a running sequence that has them (`forks`), or is held back while a running one is about to have them,
or computes them for those behind it.
"""

from itertools import islice

from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.logit_edits import has_penalties
from jaxserve.scheduler.memory.fork import ForkSource
from jaxserve.scheduler.state import PrefixGroup, SchedulerState


def fork_source(state: SchedulerState, sequence: Sequence) -> ForkSource | None:
    """A slot from which the waiting sequence can take what it shares: the one that came last, for it stays longest."""
    prefix_group = _joinable(state, sequence)
    if prefix_group is None:
        return None
    start = min(prefix_group.shared_len, _num_skippable(state, sequence))
    for other in reversed(prefix_group.running):
        if _has_pages(state, other.slot, prefix_group.shared_len, start) and _has_counts(
            state, prefix_group, sequence, other
        ):
            return ForkSource(other.slot, start)
    return None


def defer(state: SchedulerState, sequence: Sequence) -> bool:
    """Whether a running sequence is computing what this one shares; then it stands aside until that is done."""
    prefix_group = _joinable(state, sequence)
    if prefix_group is None or not _is_computing(state, prefix_group):
        return False
    state.waiting.remove(sequence)
    if prefix_group not in state.deferring:
        state.deferring.append(prefix_group)
    prefix_group.deferred[sequence.sequence_id] = sequence
    return True


def requeue_deferred(state: SchedulerState) -> None:
    """Let those who were held back queue again where what they share has been submitted, or is no longer under way."""
    for prefix_group in state.deferring.copy():
        if not _is_computing(state, prefix_group):
            for sequence in prefix_group.deferred.values():
                state.waiting.add(sequence)
            prefix_group.deferred.clear()
            state.deferring.remove(prefix_group)


def num_deferred(state: SchedulerState) -> int:
    """Sequences that stand aside."""
    return sum(len(prefix_group.deferred) for prefix_group in state.deferring)


def num_joining(state: SchedulerState) -> int:
    """Sequences at the head of the queue that can take shared pages now: each needs a token of this step's budget."""
    if not state.prefix_groups:
        return 0
    heads = islice(state.waiting, len(state.slot_table.free_slots))
    return sum(fork_source(state, sequence) is not None for sequence in heads)


def _joinable(state: SchedulerState, sequence: Sequence) -> PrefixGroup | None:
    """The sequence's group, unless it must compute the shared tokens itself for more than their KV, or not all."""
    prefix_group = state.prefix_groups.get(sequence.sequence_id)
    if prefix_group is None or sequence.request.pooling is not None:
        return None
    if prefix_group.shared_len > state.limits.max_computed(sequence.request):
        return None
    unscored = sequence.first_unscored
    return prefix_group if unscored is None or unscored >= prefix_group.shared_len else None


def _num_skippable(state: SchedulerState, sequence: Sequence) -> int:
    """Tokens that the sequence need not compute: what follows its last input, or is scored, comes of hidden states."""
    count = min(sequence.num_tokens, state.limits.max_computed(sequence.request)) - 1
    unscored = sequence.first_unscored
    return count if unscored is None else min(count, unscored - 1)


def _is_computing(state: SchedulerState, prefix_group: PrefixGroup) -> bool:
    slot_table = state.slot_table
    slots = [sequence.slot for sequence in prefix_group.running]
    return any(slot_table.num_scheduled[s] < prefix_group.shared_len <= slot_table.max_computed[s] for s in slots)


def _has_pages(state: SchedulerState, slot: int, shared_len: int, start: int) -> bool:
    """Whether the slot's steps so far have written the shared positions, and it has those that `start` sees."""
    slot_table, groups = state.slot_table, state.groups
    if slot_table.last_step[slot] < 0 or slot_table.num_scheduled[slot] < shared_len:
        return False  # what a fork of this very step has is not there yet
    firsts = [groups.first_page(g, start) for g in range(groups.num_groups)]
    return bool((slot_table.first_pages[:, slot] <= firsts).all())


def _has_counts(state: SchedulerState, prefix_group: PrefixGroup, sequence: Sequence, other: Sequence) -> bool:
    """Penalty counts are copied too: they must hold the shared tokens and none of the other's own."""
    if not has_penalties(sequence.request):
        return True
    return other.request is sequence.request and state.slot_table.num_scheduled[other.slot] == prefix_group.shared_len
