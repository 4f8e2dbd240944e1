"""Host: `Speculation`: which rows draft in a step, how much, and by which proposer, from what drafts and steps have
shown so far.

A verify bucket advances a row by its accepted drafts and one token, and takes longer than a decode bucket. The bucket
is used in which the rows of the step are expected to gain most, if they gain at all. Then all rows draft: it takes no
longer, and shows what their drafts are worth.

    a    share of a row's drafts that are accepted if those before them are (`costs/draft_acceptance.py`)
    n    drafts of a pass, one after the other: it advances the row by 1 + a + … + aⁿ tokens on average
         (Leviathan et al., arXiv 2211.17192, equation 1)

Drafts that have saved time go on while they gain a little less (`costs/earned_passes.py`). Where rows gain in no
bucket, they are tried in single passes, so far apart that they take at most `TRIAL_SHARE` of the time. Where there are
several proposers, each is tried in turn, and a row has the one by which it advances most; those of later numbers take
longer, also for the other rows of the step. A proposer that first reads what was decoded without its drafts
(`costs/unread_tokens.py`) is tried in two passes, of which the second is measured.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.options.speculative_config import MAX_SPECULATIVE_TOKENS
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.scheduler.costs.draft_acceptance import NEVER, DraftAcceptance
from jaxserve.scheduler.costs.earned_passes import EarnedPasses
from jaxserve.scheduler.costs.pass_times import TRIAL_SHARE, PassTimes
from jaxserve.scheduler.costs.unread_tokens import UnreadTokens

LEAST_GAIN = 1.05
"""Tokens in a given time, over those of decoding, from which on rows draft."""
HOPED = 0.8
"""Acceptance that is expected of a row in a trial: 3.7 tokens in a pass of 5 drafts. By 0.65 SmolLM2 on two CPU cores
would never try them in 32 rows, whose passes take 2.8 times as long and advance texts that repeat themselves by 3.3."""
LEAST_PAUSE = 8  # passes between two trials, which cost nothing where weights take all the time
RIVAL_PAUSE = 50  # passes between trials while rows gain by another proposer: such a pass may gain them nothing

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
    """A verify bucket in a step whose rows have proposers up to a number. slowdown: time of a pass over that of one
    without drafts."""

    bucket: Bucket
    proposer: int
    slowdown: float

    @property
    def needed(self) -> float:
        """Tokens a pass from which on rows gain."""
        return LEAST_GAIN * self.slowdown


class Options(NamedTuple):
    """Of a step that may draft. decode: the bucket without drafts."""

    decode: Bucket
    candidates: list[Candidate]

    def slowdown(self, bucket: Bucket, proposer: int) -> float | None:
        """As it was expected when the step was planned; None where these were no option."""
        return next((c.slowdown for c in self.candidates if (c.bucket, c.proposer) == (bucket, proposer)), None)


class SecondPass(NamedTuple):
    """Of a trial whose first pass catches up: the next pass of these slots."""

    proposer: int
    slots: np.ndarray


class Speculation:
    """depths: of each proposer; None: of one, whose drafts are chains. catches_up: as in `UnreadTokens`; None: none."""

    def __init__(self, num_slots: int, depths: Sequence[Depth] | None = None, catches_up: Sequence[bool] | None = None):
        counts = range(MAX_SPECULATIVE_TOKENS + 1)
        self._depths = np.array([[depth(n) for n in counts] for depth in depths or (int,)])
        num_proposers = len(self._depths)
        self._times = PassTimes()
        self._options = dict[int, Options]()  # by the number of a step in flight: a later one is planned before its end
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
        self._options[step_id] = Options(decode, candidates)
        expected = np.where(may_draft, self._acceptance.expected(slots), 0.0)
        # Rows do not catch up on many tokens if others gain without that.
        is_near, least = self._unread.is_near(slots), self._earned.least_gain
        plan = self._best(candidates, is_near * expected, may_draft, least=least)
        if plan is None and not is_near.all():
            is_near[:] = True
            plan = self._best(candidates, expected, may_draft, least=least)
        expected *= is_near
        second, self._second = self._second, None
        if second is not None:
            trials = [(second.proposer, np.isin(slots, second.slots))]
        else:
            due = self._due_trials(candidates, LEAST_PAUSE if plan is None else RIVAL_PAUSE)
            is_tried = is_near & (self._acceptance.unseen[:, slots] >= LEAST_PAUSE)
            trials = [(tried, is_tried[tried]) for tried in due]
        for tried, is_tried in trials:
            is_tried &= may_draft
            hoped = np.where(is_tried, 0.0, expected)
            hoped[tried, is_tried] = HOPED
            if is_tried.any() and (trial := self._best(candidates, hoped, may_draft, tried)) is not None:
                self._since_trial[tried] = 0
                if second is None and self._unread.catches_up[tried]:
                    self._second = SecondPass(tried, slots[is_tried])
                return trial
        return plan

    def observe(self, plan: StepPlan, outcome: StepOutcome, device_s: float) -> None:
        """Record a step."""
        options = self._options.pop(plan.step_id, None)
        was_behind = self._unread.observe(plan, outcome)
        if not plan.bucket.only_decodes:
            return
        drafting = plan.max_drafts > 0 if plan.bucket.is_verify else np.zeros(0, np.bool_)
        slowest = int(plan.proposers[drafting].max()) if drafting.any() else 0
        num_passes = max(1, outcome.num_rounds)
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

    def _due_trials(self, candidates: list[Candidate], least_pause: int) -> list[int]:
        """Proposers whose trial takes little enough by now, the one that was tried least lately first."""
        due = list[int]()
        for proposer, passed in enumerate(self._since_trial.tolist()):
            cost = min(c.slowdown for c in candidates if c.proposer == proposer) - 1
            num_passes = 2 if self._unread.catches_up[proposer] else 1
            if passed >= max(least_pause, num_passes * cost / TRIAL_SHARE):
                due.append(proposer)
        return sorted(due, key=lambda proposer: -self._since_trial[proposer])

    def _best(
        self,
        candidates: list[Candidate],
        acceptance: np.ndarray,
        may_draft: np.ndarray,
        tried: int | None = None,
        least: float = 1.0,
    ) -> DraftPlan | None:
        """The bucket in which the rows gain most; None if they gain in none. acceptance: [P, S]. tried: a proposer that
        must be among those of the bucket. least: gain over `LEAST_GAIN`."""
        best: tuple[float, Candidate, np.ndarray] | None = None
        for candidate in candidates:
            if tried is not None and candidate.proposer < tried:
                continue
            tokens = np.array(
                [_tokens_a_pass(acceptance[p], self._depth(candidate, p)) for p in range(candidate.proposer + 1)]
            )
            gain = float(tokens.max(axis=0).mean()) / candidate.needed
            if gain >= least and (best is None or gain > best[0]):
                best = gain, candidate, np.argmax(tokens, axis=0).astype(np.int32)
        if best is None:
            return None
        _, candidate, proposers = best
        max_drafts = np.where(may_draft, candidate.bucket.max_drafts, 0).astype(np.int32)
        return DraftPlan(candidate.bucket, max_drafts, tried is not None, proposers)

    def _depth(self, candidate: Candidate, proposer: int) -> int:
        return int(self._depths[proposer, candidate.bucket.max_drafts])

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


def _tokens_a_pass(acceptance: np.ndarray, depth: int) -> np.ndarray:
    """Tokens by which a pass advances rows on average: 1 + a + … + a^depth."""
    return np.sum(acceptance[:, None] ** np.arange(depth + 1), axis=1)
