"""Host: `UnreadTokens`: how many tokens of each row a draft model has not read, since steps without its drafts do not
run it.

    last drafts  . . . . . . .  last token       7 unread tokens: a pass with drafts reads them first, 1 + drafts at a
                 without drafts                  time, and takes longer the more there are

Such a pass does not say what drafts take; the next one does. Nor does what it reads lengthen the pause between trials:
each token is read once, however long rows pause. So drafts that pay again come back.
Where rows gain by another proposer, this would be for nothing: rows with many unread tokens stay with that one.
"""

from collections.abc import Sequence

import numpy as np

from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan

MOST_UNREAD = 64
"""Tokens on which a row may catch up while another proposer gains. Of 4 rows with random acceptance 3 % of the best
static choice's tokens are lost at most; with 32 tokens 7 %, as rows leave the draft model too early, without a limit
10 %."""


class UnreadTokens:
    """catches_up: of each proposer, whether it is such a model; one is at most."""

    def __init__(self, catches_up: Sequence[bool], num_slots: int):
        self.catches_up = np.array(catches_up, np.bool_)
        self._counts = np.zeros(num_slots, np.int32)  # before the row's last token

    def forget(self, slots: np.ndarray) -> None:
        """Of these slots, which have new sequences: steps with chunks read prompts."""
        self._counts[slots] = 0

    def is_near(self, slots: np.ndarray) -> np.ndarray:
        """bool[P, S]: whether a row may have drafts of a proposer while it gains by another one."""
        return ~self.catches_up[:, None] | (self._counts[slots] <= MOST_UNREAD)

    def observe(self, plan: StepPlan, outcome: StepOutcome) -> bool:
        """Record a step; returns whether it had to read more than a usual pass with drafts does."""
        if not self.catches_up.any():
            return False
        counts = self._counts[plan.slots]
        unread = counts + plan.num_computed(outcome.num_tokens)
        if not plan.bucket.only_decodes:  # it reads on where it has read all before
            self._counts[plan.slots] = np.where(counts > 0, unread, 0)
            return False
        if outcome.drafts is None:
            self._counts[plan.slots] = unread
            return False
        has_read = (plan.max_drafts > 0) & self.catches_up[plan.proposers]
        accepted = outcome.drafts.num_accepted[:, max(0, outcome.num_rounds - 1)]  # read by the next round
        self._counts[plan.slots] = np.where(has_read, accepted, unread)
        return bool((counts[has_read] > plan.bucket.max_drafts).any())
