"""Host: `advance_grammars`: what follows from the tokens that constrained sequences have just drawn.

Where a grammar allows one continuation only, it is appended at once (jump-forward): the row of the step in flight,
which would draw the first of these tokens, draws nothing. The next step computes all of them as a chunk, or the next
steps one each (`forced_rows.py`).

    drawn  {"na        forced  me":"      next step: a chunk of `me`, `":"`; draws what follows
"""

import numpy as np

from jaxserve.core.sequence import Sequence
from jaxserve.core.token_deltas import NO_TOKEN, TokenDeltas
from jaxserve.scheduler.logit_edits import goes_on
from jaxserve.scheduler.memory.slots import end_sequence
from jaxserve.scheduler.state import SchedulerState


def advance_grammars(state: SchedulerState, deltas: TokenDeltas) -> TokenDeltas:
    """The deltas with forced tokens, and with the ends of sequences whose grammar ends or fails."""
    constraints = state.constraints
    assert constraints is not None
    drawn: dict[int, list[int]] = {}
    for sequence, token in zip(deltas.sequences, deltas.tokens.tolist(), strict=True):
        if sequence.request.constraint is not None and not sequence.is_finished and token != NO_TOKEN:
            drawn.setdefault(sequence.sequence_id, []).append(token)
    forced: list[tuple[Sequence, int, bool]] = []
    ended: list[Sequence] = []
    for sequence_id, advance in constraints.advance(drawn).items() if drawn else ():
        sequence = state.sequences[sequence_id]
        appended = _append(state, sequence, advance.forced)
        forced += [(sequence, token, False) for token in appended]
        if sequence.is_finished:
            forced[-1] = sequence, appended[-1], True
        elif advance.may_end and not goes_on(sequence, constraints.masks([sequence_id])[sequence_id]):
            end_sequence(state, sequence, "stop")
            ended.append(sequence)
    for sequence_id, reason in constraints.take_ends():
        if (sequence := state.sequences.get(sequence_id)) is not None:
            end_sequence(state, sequence, "stop" if reason is None else "error", reason)
            ended.append(sequence)
    return _with_forced(deltas, forced).with_ended(ended)


def _append(state: SchedulerState, sequence: Sequence, tokens: tuple[int, ...]) -> list[int]:
    """Append tokens up to the sequence's end, and end it there; returns those appended."""
    slot_table, slot, request = state.slot_table, sequence.slot, sequence.request
    first = sequence.num_tokens
    kept = list(tokens[: int(slot_table.max_len[slot]) - first])
    stop = next(
        (i for i, t in enumerate(kept) if t in request.stop_ids and first + i >= slot_table.min_len[slot]), None
    )
    if stop is not None:
        del kept[stop + 1 :]
    if not kept:
        return kept
    slot_table.tokens[slot, first : first + len(kept)] = kept
    slot_table.num_tokens[slot] += len(kept)
    state.policy.charge_generated([sequence], np.array([len(kept)], np.int32))
    if stop is not None:
        end_sequence(state, sequence, "stop", request.stop_reason(kept[-1]))
    elif sequence.num_tokens >= slot_table.max_len[slot]:
        end_sequence(state, sequence, "length")
    return kept


def _with_forced(deltas: TokenDeltas, forced: list[tuple[Sequence, int, bool]]) -> TokenDeltas:
    """forced: sequence, token, and whether it is the last of its sequence."""
    if not forced:
        return deltas
    sequences, tokens, is_last = zip(*forced, strict=True)
    return TokenDeltas(
        [*deltas.sequences, *sequences],
        np.concatenate([deltas.tokens, np.array(tokens, np.int32)]),
        np.concatenate([deltas.is_finished, np.array(is_last, bool)]),
    )
