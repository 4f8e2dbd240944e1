"""Host: `Speculation`: which rows draft in a step, and how much, from what drafts and steps have shown so far.

A verify bucket advances a row by its accepted drafts and one token, and takes longer than a decode bucket. The bucket
is used in which the rows are expected to gain most, if they gain at all.

    a    share of a row's drafts that are accepted if those before them are, estimated from its last passes
    n    drafts of a pass, one after the other: it advances the row by 1 + a + … + aⁿ tokens on average
         (Leviathan et al., arXiv 2211.17192, equation 1)

Rows are tried together, in one pass; those that gain in no bucket do not draft until the next trial. Trials are so far
apart that they take at most `TRIAL_SHARE` of the time.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.options.speculative_config import MAX_SPECULATIVE_TOKENS
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.pass_times import PassTimes

LEAST_GAIN = 1.05
"""Tokens in a given time, over those of decoding, from which on rows draft."""
MEMORY = 0.7
"""Weight of a row's estimate, against what one more pass has shown."""
HOPED = 0.65
"""Acceptance that is expected of a row before it is tried: 2.7 tokens in a pass of 7 drafts."""
TRIAL_SHARE = 0.02
LEAST_PAUSE = 8  # passes between two trials, which cost nothing where weights take all the time


class DraftPlan(NamedTuple):
    """The verify bucket of a step and int32[S], the most drafts of each row in a pass. is_trial: for one pass only."""

    bucket: Bucket
    max_drafts: np.ndarray
    is_trial: bool


class Candidate(NamedTuple):
    """A verify bucket. depth: most drafts, one after the other. needed: tokens a pass from which on they gain."""

    bucket: Bucket
    depth: int
    needed: float


class Speculation:
    """depth: of so many drafts of a row, the most that stand one after the other; None: all."""

    def __init__(self, num_slots: int, depth: Callable[[int], int] | None = None):
        self._depths = np.array([n if depth is None else depth(n) for n in range(MAX_SPECULATIVE_TOKENS + 1)])
        self._times = PassTimes()
        self._decode: Bucket | None = None  # what the last step that might draft would use otherwise
        self._candidates = list[Candidate]()  # of that step
        self._epochs = np.full(num_slots, -1, np.int32)  # of the sequences that the columns below describe
        self._acceptance = np.zeros(num_slots)
        self._has_gained = np.zeros(num_slots, np.bool_)
        self._since_trial = 10**9  # passes

    def choose(
        self, slot_table: SlotTable, slots: np.ndarray, decode: Bucket, verify: Sequence[Bucket]
    ) -> DraftPlan | None:
        """How these slots draft in the next step; None where decoding is faster.

        verify: the buckets that have room, narrow ones first. Decoding is measured first: drafts that always seem to
        pay would never be compared with it.
        """
        self._forget_others(slot_table, slots)
        if not verify or not self._times.is_known(decode):
            return None
        self._decode = decode
        self._candidates = [
            Candidate(bucket, int(self._depths[bucket.max_drafts]), LEAST_GAIN * slowdown)
            for bucket, slowdown in zip(verify, self._times.slowdowns(decode, verify), strict=True)
        ]
        cost = min(candidate.needed for candidate in self._candidates) / LEAST_GAIN - 1
        is_trial = self._since_trial >= max(LEAST_PAUSE, cost / TRIAL_SHARE)
        drafting = slot_table.may_draft[slots] & (self._has_gained[slots] | is_trial)
        estimates = np.where(drafting, self._acceptance[slots], 0.0)
        gains = [_tokens_a_pass(estimates, depth).mean() / needed for _, depth, needed in self._candidates]
        best = int(np.argmax(gains))
        if gains[best] < 1:
            return None
        is_trial = bool((drafting & ~self._has_gained[slots]).any())
        self._since_trial = 0 if is_trial else self._since_trial
        return DraftPlan(verify[best], np.where(drafting, verify[best].max_drafts, 0).astype(np.int32), is_trial)

    def observe(self, plan: StepPlan, outcome: StepOutcome, device_s: float) -> None:
        """Record a step."""
        if plan.bucket.max_rounds == 1:
            return
        self._times.observe(plan.bucket, device_s / max(1, outcome.num_rounds), self._decode)
        self._since_trial += outcome.num_rounds
        if outcome.drafts is None:
            return
        own = (self._epochs[plan.slots] == plan.epochs) & (plan.max_drafts > 0)
        passes = np.minimum(outcome.num_tokens, outcome.num_rounds)  # rows that end early have fewer
        rows = np.flatnonzero(own & (passes > 0))
        slots, passes, accepted = plan.slots[rows], passes[rows], outcome.drafts.num_accepted[rows]
        num_accepted = accepted.sum(axis=1)
        num_whole = (accepted >= self._depths[plan.max_drafts[rows]][:, None]).sum(axis=1)
        num_rejected = np.maximum(passes - num_whole, 0)  # one at most in a pass: what follows it was not tried
        shown = num_accepted / np.maximum(num_accepted + num_rejected, 1)
        weight = np.where(self._has_gained[slots], MEMORY**passes, 0.0)
        found = weight * self._acceptance[slots] + (1 - weight) * shown
        gains = [_tokens_a_pass(found, depth) / needed for _, depth, needed in self._candidates]
        self._has_gained[slots] = has_gained = np.max(gains, axis=0) >= 1
        self._acceptance[slots] = np.where(has_gained, found, HOPED)

    def _forget_others(self, slot_table: SlotTable, slots: np.ndarray) -> None:
        new = slots[self._epochs[slots] != slot_table.epoch[slots]]
        self._epochs[new] = slot_table.epoch[new]
        self._acceptance[new], self._has_gained[new] = HOPED, False


def _tokens_a_pass(acceptance: np.ndarray, depth: int) -> np.ndarray:
    """Tokens by which a pass advances rows on average: 1 + a + … + a^depth."""
    return np.sum(acceptance[:, None] ** np.arange(depth + 1), axis=1)
