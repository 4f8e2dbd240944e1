"""Host: beams: sequences whose tokens the host chooses, among the likeliest ones after each.

A beam draws nothing. When its tokens are computed it is parked: slot and pages stay its own, it has candidates, and
nothing of it is planned until `branch` says which of them follow it. Its first child goes on in its place; further ones
fork from there, so full pages are shared and the last one is copied where it is partial (`forks`). Parked beams may be
preempted as others are. Their candidates stay, so nothing is computed again but for their children.
"""

import numpy as np

from jaxserve.core.sequence import Sequence, Status
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.memory.slots import end_sequence, preempt, vacate_slot
from jaxserve.scheduler.prompt_logprobs import token_logprobs
from jaxserve.scheduler.state import BeamState, PrefixGroup, SchedulerState

Choice = tuple[Sequence, int]  # a parked beam, and the token that follows it


def add_beams(state: SchedulerState, beams: list[Sequence], num_candidates: int) -> None:
    """Queue the first of a request's sequences as a beam; the others are spare ones."""
    for beam in beams:
        state.beams[beam.sequence_id] = BeamState(num_candidates, is_paused=True)
    _queue(state, beams[0])


def pause(state: SchedulerState, plan: StepPlan, outcome: StepOutcome, rows: np.ndarray) -> list[Sequence]:
    """Give candidates to the beams of these rows; those whose logits are not finite end, and are returned."""
    ended = []
    for row in rows.tolist():
        sequence = state.occupant(int(plan.slots[row]))
        if outcome.is_bad[row, 0]:
            end_sequence(state, sequence, "error")
            ended.append(sequence)
            continue
        assert outcome.logprobs is not None
        beam, place = state.beams[sequence.sequence_id], row * outcome.tokens.shape[1]
        beam.candidates = token_logprobs(outcome.logprobs, place, beam.num_candidates)
        beam.is_paused = True
    return ended


def branch(state: SchedulerState, beams: list[Sequence], choices: list[Choice]) -> list[Sequence]:
    """Let a request's `beams`, all of them parked, go on as chosen; returns the one of each choice, in their order.

    There are no more choices than beams. Those that are not chosen become spare ones, and give their pages back.
    """
    tokens: dict[Sequence, list[int]] = {}
    for parent, token in choices:
        tokens.setdefault(parent, []).append(token)
    spares = [beam for beam in beams if beam not in tokens]
    for beam in beams:
        _leave_sharing(state, beam)
        state.matches.pop(beam.sequence_id, None)  # of tokens that it may have no longer
    for spare in spares:
        state.beams[spare.sequence_id].candidates = None
        spare.status = Status.WAITING
        if spare.slot >= 0:
            vacate_slot(state, spare.slot)
    found: dict[Sequence, list[Sequence]] = {}
    for parent, next_tokens in tokens.items():
        found[parent] = [parent, *(spares.pop(0) for _ in next_tokens[1:])]
        _grow(state, found[parent], next_tokens)
    return [found[parent].pop(0) for parent, _ in choices]


def _grow(state: SchedulerState, children: list[Sequence], tokens: list[int]) -> None:
    """One token for each child of a parent, which is the first of them; the others take over what it has."""
    parent, prefix = children[0], children[0].tokens.copy()
    prefix_group = PrefixGroup(len(prefix), running=[parent] if parent.slot >= 0 else [])
    for child, token in zip(children, tokens, strict=True):
        if child is not parent:
            child.take_tokens(prefix)
        child.append(token)
        if len(children) > 1:
            state.prefix_groups[child.sequence_id] = prefix_group
        if child.slot < 0:
            _queue(state, child)
        else:
            _unpark(state, child)


def _queue(state: SchedulerState, sequence: Sequence) -> None:
    _unpark(state, sequence)
    state.waiting.add(sequence)


def _unpark(state: SchedulerState, sequence: Sequence) -> None:
    beam = state.beams[sequence.sequence_id]
    beam.is_paused, beam.candidates = False, None


def _leave_sharing(state: SchedulerState, sequence: Sequence) -> None:
    prefix_group = state.prefix_groups.pop(sequence.sequence_id, None)
    if prefix_group is not None and sequence.slot >= 0:
        prefix_group.running.remove(sequence)


def preempt_paused_beam(state: SchedulerState) -> bool:
    """Preempt the youngest parked beam, where nothing else could ever give back what others wait for."""
    if num_paused(state) == len(state.sequences) or state.num_planned > state.num_committed:
        return False
    slots = np.flatnonzero(state.slot_table.is_running & state.slot_table.is_beam).tolist()
    parked = [slot for slot in slots if state.is_paused(state.occupant(slot))]
    if parked:
        preempt(state, max(parked, key=state.key))
    return bool(parked)


def num_paused(state: SchedulerState) -> int:
    """Beams that wait for the host."""
    return sum(beam.is_paused for beam in state.beams.values())
