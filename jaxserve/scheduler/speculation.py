"""Host: `Speculation`: which rows draft in a step, how much, and by which proposer, from what drafts and steps have
shown so far.

A verify bucket advances a row by its accepted drafts and one token, and takes longer than a decode bucket. The bucket
is used in which the rows of the step are expected to gain most, if they gain at all (`costs/draft_options.py`).

Drafts that have saved time go on while they gain a little less (`costs/earned_passes.py`). Where rows gain in no
bucket, they are tried in single passes, so far apart that they take at most `TRIAL_SHARE` of the time. Where there are
several proposers, each is tried in turn, and a row has the one by which it advances most. A proposer that first reads
what was decoded without its drafts (`costs/unread_tokens.py`) is tried in two passes, of which the second is measured.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.costs.draft_acceptance import NEVER, DraftAcceptance
from jaxserve.scheduler.costs.draft_options import Candidate, Depth, DraftOptions, DraftPlan, depth_table
from jaxserve.scheduler.costs.earned_passes import EarnedPasses
from jaxserve.scheduler.costs.pass_times import TRIAL_SHARE, PassTimes
from jaxserve.scheduler.costs.unread_tokens import UnreadTokens

HOPED = 0.8
"""Acceptance that is expected of a row in a trial: 3.7 tokens in a pass of 5 drafts. By 0.65 SmolLM2 on two CPU cores
would never try them in 32 rows, whose passes take 2.8 times as long and advance texts that repeat themselves by 3.3."""
LEAST_PAUSE = 8  # passes between two trials, which cost nothing where weights take all the time
RIVAL_PAUSE = 50  # passes between trials while rows gain by another proposer: such a pass may gain them nothing


class SecondPass(NamedTuple):
    """Of a trial whose first pass catches up: the next pass of these slots."""

    proposer: int
    slots: np.ndarray


class Speculation:
    """depths: of each proposer; None: of one, whose drafts are chains. catches_up: as in `UnreadTokens`; None: none."""

    def __init__(self, num_slots: int, depths: Sequence[Depth] | None = None, catches_up: Sequence[bool] | None = None):
        self._depths = depth_table(depths or (int,))
        num_proposers = len(self._depths)
        self._times = PassTimes()
        self._options = dict[int, DraftOptions]()  # by step, of those in flight: the next is planned before one ends
        self._epochs = np.full(num_slots, -1, np.int32)  # of the sequences that are known
        self._acceptance = DraftAcceptance(num_proposers, num_slots)
        self._since_trial = np.full(num_proposers, NEVER)  # passes
        self._second: SecondPass | None = None
        self._unread = UnreadTokens(catches_up or [False] * num_proposers, num_slots)
        self._earned = EarnedPasses()

    def choose(
        self,
        step_id: int,
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
        candidates = [
            Candidate(bucket, proposer, slowdown)
            for proposer in range(len(self._depths))
            for bucket, slowdown in zip(verify, self._times.slowdowns(decode, verify, proposer), strict=True)
        ]
        options = self._options[step_id] = DraftOptions(decode, candidates, self._depths)
        expected = np.where(may_draft, self._acceptance.expected(slots), 0.0)
        # Rows do not catch up on many tokens if others gain without that.
        is_near, least = self._unread.is_near(slots), self._earned.least_gain
        plan = options.best(is_near * expected, may_draft, least=least)
        if plan is None and not is_near.all():
            is_near[:] = True
            plan = options.best(expected, may_draft, least=least)
        expected *= is_near
        second, self._second = self._second, None
        if second is not None:
            trials = [(second.proposer, np.isin(slots, second.slots))]
        else:
            due = self._due_trials(options, LEAST_PAUSE if plan is None else RIVAL_PAUSE)
            is_tried = is_near & (self._acceptance.unseen[:, slots] >= LEAST_PAUSE)
            trials = [(tried, is_tried[tried]) for tried in due]
        for tried, is_tried in trials:
            is_tried &= may_draft
            hoped = np.where(is_tried, 0.0, expected)
            hoped[tried, is_tried] = HOPED
            if is_tried.any() and (trial := options.best(hoped, may_draft, tried=tried)) is not None:
                self._since_trial[tried] = 0
                if second is None and self._unread.catches_up[tried]:
                    self._second = SecondPass(tried, slots[is_tried])
                return trial
        return plan

    def observe(self, plan: StepPlan, outcome: StepOutcome, device_s: float) -> None:
        """Record a step."""
        options = self._options.pop(plan.step_id, None)
        was_behind = self._unread.observe(plan, outcome)
        if not plan.bucket.only_decodes or not outcome.num_rounds:  # of none, all rows had ended before
            return
        drafting = plan.max_drafts > 0 if plan.bucket.is_verify else np.zeros(0, np.bool_)
        slowest = int(plan.proposers[drafting].max()) if drafting.any() else 0
        num_passes = outcome.num_rounds
        if plan.bucket.is_decode and len(plan.late_rows):  # which draw one token each, and others perhaps several
            num_passes = plan.max_tokens.mean()
        decode = None if options is None or was_behind else options.decode
        self._times.observe(plan.bucket, device_s / num_passes, decode, slowest)
        self._since_trial += outcome.num_rounds
        self._acceptance.age(plan.slots, outcome.num_rounds)
        if outcome.drafts is None:
            self._earned.forget()
            return
        own = (self._epochs[plan.slots] == plan.epochs) & drafting & plan.samples  # else its next token was forced
        tokens, passes = outcome.num_tokens * plan.samples, _passes_of_rows(outcome.drafts, outcome.num_tokens)
        if options is not None and (slowdown := options.slowdown(plan.bucket, slowest)) is not None:
            self._earned.observe(num_passes, float(tokens.sum() / max(1, passes[plan.samples].sum())), slowdown)
        rows = np.flatnonzero(own & (passes > 0))
        proposers, passes, accepted = plan.proposers[rows], passes[rows], outcome.drafts.num_accepted[rows]
        num_whole = (accepted >= self._depths[proposers, plan.max_drafts[rows]][:, None]).sum(axis=1)
        num_rejected = np.maximum(passes - num_whole, 0)  # one at most in a pass: what follows it was not tried
        num_accepted = accepted.sum(axis=1)
        self._acceptance.observe(proposers, plan.slots[rows], passes, num_accepted, num_accepted + num_rejected)

    def _due_trials(self, options: DraftOptions, least_pause: int) -> list[int]:
        """Proposers whose trial takes little enough by now, the one that was tried least lately first."""
        due = list[int]()
        for proposer, passed in enumerate(self._since_trial.tolist()):
            cost = options.least_slowdown(proposer) - 1
            num_passes = 2 if self._unread.catches_up[proposer] else 1
            if passed >= max(least_pause, num_passes * cost / TRIAL_SHARE):
                due.append(proposer)
        return sorted(due, key=lambda proposer: -self._since_trial[proposer])

    def _forget_others(self, slot_table: SlotTable, slots: np.ndarray) -> None:
        new = slots[self._epochs[slots] != slot_table.epoch[slots]]
        self._epochs[new] = slot_table.epoch[new]
        self._acceptance.forget(new)
        self._unread.forget(new)
        if len(new) == len(slots):
            self._earned.forget()


def _passes_of_rows(drafts: DraftCounts, num_tokens: np.ndarray) -> np.ndarray:
    """int[S]: in which rows drew these tokens; those that end early have fewer."""
    advanced = 1 + drafts.num_accepted
    return (np.cumsum(advanced, axis=1) - advanced < num_tokens[:, None]).sum(axis=1)
