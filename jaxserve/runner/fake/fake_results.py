"""Host: the results of `FakeRunner`'s steps: log-probabilities, hidden states and counts of drafts, as arrays."""

import numpy as np

from jaxserve.core.row_layout import POOLING, SAMPLING_INDEX
from jaxserve.core.step_outcome import DraftCounts, TopLogprobs
from jaxserve.core.step_plan import StepPlan
from jaxserve.runner.fake.fake_drafts import DrawnRow, Scored
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel
from jaxserve.runner.fake.fake_slots import FakeSlots


def tokens_of(rows: list[DrawnRow]) -> np.ndarray:
    """int32[S, most tokens of a row]; bad logits have 0."""
    most = most_tokens(rows)
    return np.array([filled([token or 0 for token in row.tokens], most, 0) for row in rows], np.int32)


def bad_logits_of(rows: list[DrawnRow]) -> np.ndarray:
    """bool[S, most tokens of a row]."""
    most = most_tokens(rows)
    return np.array([filled([token is None for token in row.tokens], most, False) for row in rows], bool)


def logprobs_of(model: FakeModel, rows: list[DrawnRow], max_logprobs: int) -> TopLogprobs:
    """Of all tokens that rows drew, as many of each row as the longest has."""
    most = most_tokens(rows)
    scored = [entry for row in rows for entry in filled(row.scored, most, (EMPTY_PREFIX, 0))]
    return top_logprobs(model, scored, max_logprobs)


def most_tokens(rows: list[DrawnRow]) -> int:
    """That a row drew."""
    return max(len(row.tokens) for row in rows)


def draft_counts(rows: list[DrawnRow], num_rounds: int) -> DraftCounts:
    """By row and round."""
    table = np.array([filled(row.drafts, num_rounds, (0, 0)) for row in rows], np.int32)
    return DraftCounts(table[:, :, 0], table[:, :, 1])


def prompt_logprobs(
    model: FakeModel, slots: FakeSlots, plan: StepPlan, starts: list[int], max_logprobs: int
) -> TopLogprobs:
    """Of the plan's targets, row by row. starts: positions of the rows' first tokens."""
    assert plan.targets is not None
    offsets = np.concatenate([[0], np.cumsum(plan.query_lens)]).tolist()
    scored = list[Scored]()
    for row, start in enumerate(starts):
        targets = plan.targets[offsets[row] : offsets[row + 1]].tolist()
        prefixes = slots.prefixes[plan.slots[row], start : start + len(targets)].tolist()
        scored += [(prefix, target) for prefix, target in zip(prefixes, targets, strict=True) if target >= 0]
    return top_logprobs(model, scored, max_logprobs)


def pooled(model: FakeModel, slots: FakeSlots, plan: StepPlan, starts: list[int]) -> np.ndarray:
    """[S, 1]: the sum of the hidden states of the row's tokens, or the last one."""
    rows = list[list[float]]()
    modes = plan.sampling[:, SAMPLING_INDEX["pooling"]].tolist()
    for slot, start, mode in zip(plan.slots.tolist(), starts, modes, strict=True):
        states = list(map(model.hidden, slots.sequence(slot, start).tolist()))
        rows.append([sum(states) if mode == POOLING["mean"] else states[-1]])
    return np.array(rows, np.float32)


def top_logprobs(model: FakeModel, scored: list[Scored], max_logprobs: int) -> TopLogprobs:
    """For each (prefix, token) the token's log-probability, and the likeliest ids, the lowest ids among equals."""
    chosen = np.array([model.logprob(prefix, token) for prefix, token in scored], np.float32)
    logprobs = np.array([model.logprobs(prefix) for prefix, _ in scored], np.float32)
    top_ids = np.argsort(-logprobs, axis=1, kind="stable")[:, :max_logprobs]
    top = np.take_along_axis(logprobs, top_ids, axis=1)
    return TopLogprobs(chosen, np.ones(len(scored), np.int32), top_ids.astype(np.int32), top)


def filled[T](values: list[T], size: int, value: T) -> list[T]:
    """With `value` up to this size."""
    return values + [value] * (size - len(values))
