"""Host: beams: sequences whose tokens the host chooses among the likeliest candidates.

A beam draws no tokens. Once its tokens are computed it is paused: it keeps its slot and pages, has candidates, and is
not planned until `branch` gives the tokens that follow. Its first child continues in its slot; further children fork
from it, so full pages are shared and a partial last page is copied (`memory.fork`). A paused beam can be preempted like
any other sequence; its candidates remain, so only its children recompute.
"""

import numpy as np

from jaxserve.core.sequence import Sequence, Status
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.memory.preemption import preempt
from jaxserve.scheduler.memory.slots import end_sequence, vacate_slot
from jaxserve.scheduler.new_sequences import enqueue_new
from jaxserve.scheduler.prompt_results import token_logprobs
from jaxserve.scheduler.state import Beam, PrefixGroup, SchedulerState

Choice = tuple[Sequence, int]
"""A paused beam, and the token that follows it."""


def add_beams(state: SchedulerState, beams: list[Sequence], num_candidates: int) -> None:
    """Queue the first of a request's sequences as a beam; the others are spare beams."""
    for beam in beams:
        state.beams[beam.sequence_id] = Beam(num_candidates)
        beam.status = Status.PAUSED
    enqueue_new(state, beams[0])


def pause(state: SchedulerState, plan: StepPlan, outcome: StepOutcome, rows: np.ndarray) -> list[Sequence]:
    """Give candidates to the beams of these rows; ends and returns those whose logits are not finite."""
    ended: list[Sequence] = []
    for row in rows.tolist():
        sequence = state.occupant(int(plan.slots[row]))
        if outcome.is_bad[row, 0]:
            end_sequence(state, sequence, "error")
            ended.append(sequence)
            continue
        assert outcome.logprobs is not None
        beam, entry = state.beams[sequence.sequence_id], row * outcome.tokens.shape[1]
        beam.candidates = token_logprobs(outcome.logprobs, entry, beam.num_candidates)
        sequence.status = Status.PAUSED
    return ended


def branch(state: SchedulerState, beams: list[Sequence], choices: list[Choice]) -> list[Sequence]:
    """Continue a request's `beams`, all of them paused, as chosen; returns the beam of each choice, in order.

    There are at most as many choices as beams. Beams that no choice names become spare and give their pages back.
    """
    tokens: dict[Sequence, list[int]] = {}
    for parent, token in choices:
        tokens.setdefault(parent, []).append(token)
    spares = [beam for beam in beams if beam not in tokens]
    for beam in beams:
        _leave_prefix_group(state, beam)
        state.matches.pop(beam.sequence_id, None)  # found for tokens that the beam may lose
    for spare in spares:
        state.beams[spare.sequence_id].candidates = None
        if spare.slot >= 0:
            vacate_slot(state, spare.slot)
    found: dict[Sequence, list[Sequence]] = {}
    for parent, next_tokens in tokens.items():
        found[parent] = [parent, *(spares.pop(0) for _ in next_tokens[1:])]
        _grow(state, found[parent], next_tokens)
    return [found[parent].pop(0) for parent, _ in choices]


def _grow(state: SchedulerState, children: list[Sequence], tokens: list[int]) -> None:
    """Append one token to each child of a parent. The parent is the first child; the others take over its tokens."""
    parent, prefix = children[0], children[0].tokens.copy()
    prefix_group = PrefixGroup(len(prefix), running=[parent] if parent.slot >= 0 else [])
    for child, token in zip(children, tokens, strict=True):
        if child is not parent:
            child.take_tokens(prefix)
        child.append(token)
        if len(children) > 1:
            state.prefix_groups[child.sequence_id] = prefix_group
        state.beams[child.sequence_id].candidates = None
        if child.slot < 0:
            state.enqueue(child)
        else:
            child.status = Status.RUNNING


def _leave_prefix_group(state: SchedulerState, sequence: Sequence) -> None:
    prefix_group = state.prefix_groups.pop(sequence.sequence_id, None)
    if prefix_group is not None and sequence.slot >= 0:
        prefix_group.running.remove(sequence)


def preempt_paused_beam(state: SchedulerState) -> bool:
    """Preempt the last paused beam by policy, if only the host could free pages otherwise; False: there is none."""
    if state.num_paused == len(state.sequences) or state.num_planned > state.num_committed:
        return False
    slots: list[int] = np.flatnonzero(state.slot_table.is_running & state.slot_table.is_beam).tolist()
    paused = [slot for slot in slots if state.occupant(slot).is_paused]
    if paused:
        preempt(state, max(paused, key=state.key))
    return bool(paused)
