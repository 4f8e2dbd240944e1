"""Host: `start_waiting`: waiting sequences get slots in the order of the policy, while slots, pages and tokens last."""

from collections.abc import Iterator
from itertools import islice

from jaxserve.core.sequence import Sequence
from jaxserve.kv.prefix_cache import PrefixMatch
from jaxserve.scheduler.memory.adapter_pages import load_adapter
from jaxserve.scheduler.memory.fork import ForkSource, fork
from jaxserve.scheduler.memory.kept_kv import begin_policy
from jaxserve.scheduler.memory.page_tables import num_new_pages, num_spare_pages
from jaxserve.scheduler.memory.preemption import preempt_over_served
from jaxserve.scheduler.memory.prefix_reuse import find_prefix, num_prefix_pages, take_prefix
from jaxserve.scheduler.memory.prefix_sharing import defer, fork_source, num_deferred
from jaxserve.scheduler.memory.slots import assign_slot
from jaxserve.scheduler.state import SchedulerState, StepRows
from jaxserve.scheduler.step.prefill_chunks import add_chunk, chunk_len, running_prompts

LOOK_AHEAD = 8  # sequences at the head of the queue, of which the one with the longest cached prefix goes first
MAX_OVERTAKEN = 8  # times that a sequence may be overtaken in this way
MAX_WITHOUT_PLACE = 64
"""Times that a sequence may be overtaken while there is no place for its adapter, by some of as many after it: with 64
slots, 32 places and 2,000 adapters, the k-th asked for 1 / k^1.1 as often as the first, 256 sequences of 33 tokens take
171 steps in a simulation, and 202 with a limit of 8."""


def start_ahead(state: SchedulerState, rows: StepRows) -> None:
    """Start sequences that the policy puts before the next chunk of every running prompt."""
    while len(state.waiting) and not rows.is_short and (prompts := running_prompts(state, rows)):
        first = state.waiting.first()
        if not all(state.policy.goes_ahead(first, state.occupant(slot)) for slot in prompts):
            return
        if not _start_next(state, rows):
            return


def start_waiting(state: SchedulerState, rows: StepRows) -> None:
    """Start waiting sequences with their first chunk, after the prefix that a running one or the prefix cache has.

    A sequence with a longer cached prefix overtakes its peers, a limited number of times, before the prefix is evicted,
    and so does one whose adapter is on the device while all places are in use.
    Otherwise no sequence overtakes one for which there is no room, nor a deferred one, for which a slot stays free.
    That blocks the queue only briefly, since the sequence that a deferred one depends on is running.
    """
    while len(state.waiting) and not rows.is_short and _start_next(state, rows):
        pass


def _start_next(state: SchedulerState, rows: StepRows) -> bool:
    """Start the next sequence, or defer it; False if it cannot start now."""
    has_slot = len(state.slot_table.free_slots) > num_deferred(state)
    if rows.budget <= 0 or not (has_slot or state.policy.victim_for(state.waiting.first())):
        return False
    sequence = _next(state)
    if sequence is None:
        return False
    source = fork_source(state, sequence)
    if source is None and has_slot and defer(state, sequence):
        return True
    match = find_prefix(state, sequence) if source is None else None
    num_pages = _num_pages(state, sequence, match, source)
    if not has_slot or num_pages > num_spare_pages(state):
        return preempt_over_served(state, rows, sequence, num_pages)
    for overtaken in state.waiting.ahead_of(sequence):
        overtaken.num_overtaken += 1
    slot = assign_slot(state, sequence)
    if source is not None:
        fork(state, rows, source, slot)
    elif match is not None:
        take_prefix(state, slot, match)
    load_adapter(state, slot)
    begin_policy(state, slot)
    rows.new_slots.append(slot)
    add_chunk(state, rows, slot, chunk_len(state, rows, slot))
    return True


def _next(state: SchedulerState) -> Sequence | None:
    """The first sequence, or a peer with a longer cached prefix for which there are pages.

    None where the device has no place for its adapter, nor for those of the peers that may overtake it.
    """
    first = state.waiting.first()
    if not _has_place(state, first):
        if first.num_overtaken >= MAX_WITHOUT_PLACE:
            return None
        return next((peer for peer in _heads(state, MAX_WITHOUT_PLACE) if _has_place(state, peer)), None)
    is_alone = state.prefix_cache is None or first.sequence_id in state.prefix_groups
    if first.num_overtaken >= MAX_OVERTAKEN or is_alone:
        return first
    heads = [sequence for sequence in _heads(state, LOOK_AHEAD) if _has_place(state, sequence)]
    lens = {s: m.num_pages for s in heads if (m := find_prefix(state, s))}
    best = max(lens, key=lens.__getitem__)  # the first of equals
    num_pages = _num_pages(state, best, state.matches[best.sequence_id])
    return best if num_pages <= num_spare_pages(state) else heads[0]


def _has_place(state: SchedulerState, sequence: Sequence) -> bool:
    return state.adapters is None or state.adapters.has_place(sequence.request.adapter)


def _heads(state: SchedulerState, count: int) -> Iterator[Sequence]:
    """The first `count` of the queue; of those that share a prefix only the first, from which others may fork."""
    seen: set[int] = set()
    for sequence in islice(state.waiting.peers(), count):
        group = state.prefix_groups.get(sequence.sequence_id)
        if group is not None and id(group) in seen:
            continue
        if group is not None:
            seen.add(id(group))
        yield sequence


def _num_pages(
    state: SchedulerState, sequence: Sequence, match: PrefixMatch | None, source: ForkSource | None = None
) -> int:
    """The most idle pages for the whole prompt. They are taken chunk by chunk, but a prompt must fit to be useful."""
    request = sequence.request
    num_inputs, num_own = min(sequence.num_tokens, state.limits.max_computed(request)), 0
    if (policy := state.kv_policy_of(request)) is not None:
        num_inputs, num_own = min(num_inputs, policy.capacity), policy.num_own_pages(state.groups)
    if state.adapters is not None:
        num_own += state.adapters.num_new_pages(request.adapter)
    if match is not None:
        return num_own + num_prefix_pages(state, match, num_inputs)
    return num_own + num_new_pages(state, num_inputs, 0 if source is None else source.start)
