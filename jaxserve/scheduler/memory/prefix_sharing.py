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


def source_of(state: SchedulerState, sequence: Sequence) -> ForkSource | None:
    """A slot from which the waiting sequence can take what it shares: the one that came last, for it stays longest."""
    sharing = _joinable(state, sequence)
    if sharing is None:
        return None
    start = min(sharing.shared_len, _num_skippable(state, sequence))
    for other in reversed(sharing.running):
        if _has_pages(state, other.slot, sharing.shared_len, start) and _has_counts(state, sharing, sequence, other):
            return ForkSource(other.slot, start)
    return None


def hold_back(state: SchedulerState, sequence: Sequence) -> bool:
    """Whether a running sequence is computing what this one shares; then it stands aside until that is done."""
    sharing = _joinable(state, sequence)
    if sharing is None or not _is_under_way(state, sharing):
        return False
    state.waiting.remove(sequence)
    if sharing not in state.holding:
        state.holding.append(sharing)
    sharing.held[sequence.sequence_id] = sequence
    return True


def return_held(state: SchedulerState) -> None:
    """Let those who were held back queue again where what they share has been submitted, or is no longer under way."""
    for sharing in state.holding.copy():
        if not _is_under_way(state, sharing):
            for sequence in sharing.held.values():
                state.waiting.add(sequence)
            sharing.held.clear()
            state.holding.remove(sharing)


def num_held(state: SchedulerState) -> int:
    """Sequences that stand aside."""
    return sum(len(sharing.held) for sharing in state.holding)


def num_joining(state: SchedulerState) -> int:
    """Sequences at the head of the queue that can take shared pages now: each needs a token of this step's budget."""
    if not state.sharings:
        return 0
    heads = islice(state.waiting, len(state.columns.free_slots))
    return sum(source_of(state, sequence) is not None for sequence in heads)


def _joinable(state: SchedulerState, sequence: Sequence) -> PrefixGroup | None:
    """The sequence's sharing, unless it must compute the shared tokens itself for more than their KV, or not all."""
    sharing = state.sharings.get(sequence.sequence_id)
    if sharing is None or sequence.request.pooling is not None:
        return None
    if sharing.shared_len > state.limits.max_computed(sequence.request):
        return None
    unscored = sequence.first_unscored
    return sharing if unscored is None or unscored >= sharing.shared_len else None


def _num_skippable(state: SchedulerState, sequence: Sequence) -> int:
    """Tokens that the sequence need not compute: what follows its last input, or is scored, comes of hidden states."""
    count = min(sequence.num_tokens, state.limits.max_computed(sequence.request)) - 1
    unscored = sequence.first_unscored
    return count if unscored is None else min(count, unscored - 1)


def _is_under_way(state: SchedulerState, sharing: PrefixGroup) -> bool:
    columns = state.columns
    slots = [sequence.slot for sequence in sharing.running]
    return any(columns.num_scheduled[s] < sharing.shared_len <= columns.max_computed[s] for s in slots)


def _has_pages(state: SchedulerState, slot: int, shared_len: int, start: int) -> bool:
    """Whether the slot's steps so far have written the shared positions, and it has those that `start` sees."""
    columns, groups = state.columns, state.groups
    if columns.last_step[slot] < 0 or columns.num_scheduled[slot] < shared_len:
        return False  # what a fork of this very step has is not there yet
    firsts = [groups.first_page(g, start) for g in range(groups.num_groups)]
    return bool((columns.first_pages[:, slot] <= firsts).all())


def _has_counts(state: SchedulerState, sharing: PrefixGroup, sequence: Sequence, other: Sequence) -> bool:
    """Penalty counts are copied too: they must hold the shared tokens and none of the other's own."""
    if not has_penalties(sequence.request):
        return True
    return other.request is sequence.request and state.columns.num_scheduled[other.slot] == sharing.shared_len
