"""Host: `Speculation`: which rows draft in a step, how much, and by which proposer, from what drafts and steps have
shown so far.

A verify bucket advances a row by its accepted drafts and one token, and takes longer than a decode bucket. The bucket
is used in which the rows are expected to gain most, if they gain at all.

    a    share of a row's drafts that are accepted if those before them are, estimated from its last passes
    n    drafts of a pass, one after the other: it advances the row by 1 + a + … + aⁿ tokens on average
         (Leviathan et al., arXiv 2211.17192, equation 1)

Rows are tried together, in one pass; those that gain in no bucket do not draft until the next trial. Trials are so far
apart that they take at most `TRIAL_SHARE` of the time. Where there are several proposers, each is tried in turn, and a
row has the one by which it advances most; those of later numbers take longer, also for the other rows of the step.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.options.speculative_config import MAX_SPECULATIVE_TOKENS
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.costs.pass_times import TRIAL_SHARE, PassTimes

LEAST_GAIN = 1.05
"""Tokens in a given time, over those of decoding, from which on rows draft."""
MEMORY = 0.7
"""Weight of what a pass has shown, against the pass after it."""
UNUSED_MEMORY = 0.95
"""The same while a row has another proposer: what it was is soon uncertain, and `HOPED` expected again."""
HOPED = 0.65
"""Acceptance that is expected of a row before it is tried: 2.7 tokens in a pass of 7 drafts."""
MIN_TRIED = 1e-6
CAUTION = 0.1
"""Drafts that count as if they had shown what is hoped."""
LEAST_PAUSE = 8  # passes between two trials, which cost nothing where weights take all the time
RIVAL_PAUSE = 50  # passes between trials of rows that gain by another proposer: such a pass may gain them nothing

Depth = Callable[[int], int]
"""Of so many drafts of a row, the most that stand one after the other."""


class DraftPlan(NamedTuple):
    """The verify bucket of a step and int32[S], the most drafts of each row in a pass. is_trial: for one pass only.
    proposers: int32[S], the number of each row's proposer."""

    bucket: Bucket
    max_drafts: np.ndarray
    is_trial: bool
    proposers: np.ndarray


class Candidate(NamedTuple):
    """A verify bucket in a step whose rows have proposers up to a number. needed: tokens a pass from which on they
    gain."""

    bucket: Bucket
    proposer: int
    needed: float


class Speculation:
    """depths: of each proposer; None: of one, whose drafts are chains."""

    def __init__(self, num_slots: int, depths: Sequence[Depth] | None = None):
        counts = range(MAX_SPECULATIVE_TOKENS + 1)
        self._depths = np.array([[depth(n) for n in counts] for depth in depths or (int,)])
        num_proposers = len(self._depths)
        self._times = PassTimes()
        self._decode: Bucket | None = None  # what the last step that might draft would use otherwise
        self._candidates = list[Candidate]()  # of that step
        self._epochs = np.full(num_slots, -1, np.int32)  # of the sequences that the columns below describe
        self._num_accepted = np.zeros((num_proposers, num_slots))  # drafts, of late
        self._num_tried = np.zeros((num_proposers, num_slots))
        self._has_gained = np.zeros((num_proposers, num_slots), np.bool_)
        self._since_trial = np.full(num_proposers, 10**9)  # passes
        self._since_rival = np.zeros(num_proposers, int)

    def choose(
        self,
        slot_table: SlotTable,
        slots: np.ndarray,
        may_draft: np.ndarray,
        decode: Bucket,
        verify: Sequence[Bucket],
    ) -> DraftPlan | None:
        """How these slots draft in the next step; None where decoding is faster.

        may_draft: bool[S]. verify: the buckets that have room, narrow ones first. Decoding is measured first: drafts
        that always seem to pay would never be compared with it.
        """
        self._forget_others(slot_table, slots)
        if not verify or not self._times.is_known(decode):
            return None
        self._decode = decode
        self._candidates = [
            Candidate(bucket, proposer, LEAST_GAIN * slowdown)
            for proposer in range(len(self._depths))
            for bucket, slowdown in zip(verify, self._times.slowdowns(decode, verify, proposer), strict=True)
        ]
        self._drop_losses(slots)
        for tried in self._due_trials():
            is_tried = may_draft & ~self._has_gained[tried, slots]
            has_rival = self._since_rival[tried] >= RIVAL_PAUSE
            is_tried &= has_rival | ~self._has_gained[:, slots].any(axis=0)
            if is_tried.any() and (plan := self._best(slots, may_draft, tried, is_tried)) is not None:
                self._since_trial[tried] = 0
                self._since_rival[tried] = 0 if has_rival else self._since_rival[tried]
                return plan
        return self._best(slots, may_draft, None, np.zeros_like(may_draft))

    def observe(self, plan: StepPlan, outcome: StepOutcome, device_s: float) -> None:
        """Record a step."""
        if not plan.bucket.only_decodes:
            return
        drafting = plan.max_drafts > 0 if plan.bucket.is_verify else np.zeros(0, np.bool_)
        slowest = int(plan.proposers[drafting].max()) if drafting.any() else 0
        num_passes = max(1, outcome.num_rounds)
        if plan.bucket.is_decode and len(plan.late_rows):  # which draw one token each, and others perhaps several
            num_passes = plan.max_tokens.mean()
        self._times.observe(plan.bucket, device_s / num_passes, self._decode, slowest)
        self._since_trial += outcome.num_rounds
        self._since_rival += outcome.num_rounds
        if outcome.drafts is None:
            return
        own = (self._epochs[plan.slots] == plan.epochs) & drafting & plan.samples  # else its next token was forced
        passes = np.minimum(outcome.num_tokens, outcome.num_rounds)  # rows that end early have fewer
        rows = np.flatnonzero(own & (passes > 0))
        where, passes = (plan.proposers[rows], plan.slots[rows]), passes[rows]
        accepted = outcome.drafts.num_accepted[rows]
        num_accepted = accepted.sum(axis=1)
        num_whole = (accepted >= self._depths[where[0], plan.max_drafts[rows]][:, None]).sum(axis=1)
        num_rejected = np.maximum(passes - num_whole, 0)  # one at most in a pass: what follows it was not tried
        self._num_tried[:, plan.slots] *= UNUSED_MEMORY**outcome.num_rounds
        self._num_accepted[:, plan.slots] *= UNUSED_MEMORY**outcome.num_rounds
        weight = np.where(self._has_gained[where], MEMORY**passes, 0.0)
        self._num_accepted[where] = weight * self._num_accepted[where] + num_accepted
        self._num_tried[where] = weight * self._num_tried[where] + num_accepted + num_rejected
        self._has_gained[where] = True
        self._drop_losses(plan.slots)

    def _drop_losses(self, slots: np.ndarray) -> None:
        """Rows whose drafts gain in no bucket, by what is known of both by now, are as if they were never tried."""
        for proposer, has_gained in enumerate(self._has_gained):
            shown = self._num_accepted[proposer, slots] / np.maximum(self._num_tried[proposer, slots], MIN_TRIED)
            own = [c for c in self._candidates if c.proposer == proposer]
            gains = np.max([_tokens_a_pass(shown, self._depth(c, proposer)) / c.needed for c in own], axis=0)
            lost = slots[gains < 1]
            has_gained[lost] = False
            self._num_tried[proposer, lost] = self._num_accepted[proposer, lost] = 0

    def _due_trials(self) -> list[int]:
        """Proposers whose trial takes little enough by now, the one that was tried least lately first."""
        due = list[int]()
        for proposer, passed in enumerate(self._since_trial.tolist()):
            cost = min(c.needed for c in self._candidates if c.proposer == proposer) / LEAST_GAIN - 1
            if passed >= max(LEAST_PAUSE, cost / TRIAL_SHARE):
                due.append(proposer)
        return sorted(due, key=lambda proposer: -self._since_trial[proposer])

    def _best(
        self, slots: np.ndarray, may_draft: np.ndarray, tried: int | None, is_tried: np.ndarray
    ) -> DraftPlan | None:
        """The bucket in which the rows gain most; None if they gain in none. tried: the proposer of the rows that
        `is_tried`; None: there are no such."""
        drafting = self._has_gained[:, slots] & may_draft[None]
        if tried is not None:
            drafting = drafting & ~is_tried[None]
            drafting[tried] |= is_tried
        accepted, num_tried = self._num_accepted[:, slots], self._num_tried[:, slots]
        estimates = np.where(drafting, (accepted + CAUTION * HOPED) / (num_tried + CAUTION), 0.0)
        best: tuple[float, Candidate, np.ndarray] | None = None
        for candidate in self._candidates:
            if tried is not None and candidate.proposer < tried:
                continue
            tokens = np.array(
                [_tokens_a_pass(estimates[p], self._depth(candidate, p)) for p in range(candidate.proposer + 1)]
            )
            gain = float(tokens.max(axis=0).mean()) / candidate.needed
            if gain >= 1 and (best is None or gain > best[0]):
                best = gain, candidate, np.argmax(tokens, axis=0).astype(np.int32)
        if best is None:
            return None
        _, candidate, proposers = best
        drafts = drafting[proposers, np.arange(len(slots))]
        max_drafts = np.where(drafts, candidate.bucket.max_drafts, 0).astype(np.int32)
        return DraftPlan(candidate.bucket, max_drafts, tried is not None, proposers)

    def _depth(self, candidate: Candidate, proposer: int) -> int:
        return int(self._depths[proposer, candidate.bucket.max_drafts])

    def _forget_others(self, slot_table: SlotTable, slots: np.ndarray) -> None:
        new = slots[self._epochs[slots] != slot_table.epoch[slots]]
        self._epochs[new] = slot_table.epoch[new]
        for table in (self._num_accepted, self._num_tried, self._has_gained):
            table[:, new] = 0


def _tokens_a_pass(acceptance: np.ndarray, depth: int) -> np.ndarray:
    """Tokens by which a pass advances rows on average: 1 + a + … + a^depth."""
    return np.sum(acceptance[:, None] ** np.arange(depth + 1), axis=1)
