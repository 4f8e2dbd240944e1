"""Host: `DraftAcceptance`: how often drafts are expected to be accepted, by row and proposer, after what passes showed.

    a = (accepted + CAUTION · mean) / (tried + CAUTION)     accepted, tried: of the row's last passes
                                                            mean: of all rows' passes, for a longer time

So a new row is taken to be like the others were, and one that has not drafted for a while is so again. The mean is one
of texts, not of passes that happened to draft: a row's pass also stands for those before it without drafts, in which
there was little hope.
"""

import numpy as np

MEMORY = 0.7
"""Weight of what a pass has shown, against the pass after it."""
UNUSED_MEMORY = 0.95
"""The same if the row had no drafts of this proposer in the pass after it."""
MEAN_MEMORY = 0.99
"""The same in the mean."""
CAUTION = 1.0
"""Drafts that count as if they had been accepted as often as the mean says."""
MOST_STOOD_FOR = 50  # passes without drafts
NEVER = 10**9


class DraftAcceptance:
    """unseen: [P, slots], passes since a row had drafts of each proposer, `NEVER` or more if it had none."""

    def __init__(self, num_proposers: int, num_slots: int):
        self._accepted, self._tried = np.zeros((2, num_proposers, num_slots))
        self._mean_accepted, self._mean_tried = np.zeros((2, num_proposers))
        self.unseen = np.full((num_proposers, num_slots), NEVER)

    def forget(self, slots: np.ndarray) -> None:
        """Of these slots, which have new sequences."""
        self._accepted[:, slots] = self._tried[:, slots] = 0
        self.unseen[:, slots] = NEVER

    def expected(self, slots: np.ndarray) -> np.ndarray:
        """float64[P, S]: the share of drafts that are accepted if those before them are; 0 before there were any."""
        mean = self._mean_accepted / np.maximum(self._mean_tried, np.finfo(float).tiny)
        return (self._accepted[:, slots] + CAUTION * mean[:, None]) / (self._tried[:, slots] + CAUTION)

    def age(self, slots: np.ndarray, num_passes: int) -> None:
        """These rows had passes, with drafts or without."""
        self._accepted[:, slots] *= UNUSED_MEMORY**num_passes
        self._tried[:, slots] *= UNUSED_MEMORY**num_passes
        self.unseen[:, slots] += num_passes

    def observe(
        self,
        proposers: np.ndarray,
        slots: np.ndarray,
        num_passes: np.ndarray,
        accepted: np.ndarray,
        tried: np.ndarray,
    ) -> None:
        """Rows, of which each had drafts of one proposer in some of the passes by which it has just aged; sums of
        these. tried: accepted ones, and those that were not though all before them were."""
        where = proposers, slots
        stood_for = self.unseen[where] - num_passes + 1
        weight = np.where(stood_for >= NEVER, 1, np.clip(stood_for, 1, MOST_STOOD_FOR))
        for proposer in np.unique(proposers):
            own = proposers == proposer
            faded = MEAN_MEMORY ** np.mean(weight[own] * num_passes[own])
            for mean, counts in ((self._mean_accepted, accepted), (self._mean_tried, tried)):
                mean[proposer] = faded * mean[proposer] + np.mean(weight[own] * counts[own])
        kept = (MEMORY / UNUSED_MEMORY) ** num_passes
        self._accepted[where] = kept * self._accepted[where] + accepted
        self._tried[where] = kept * self._tried[where] + tried
        self.unseen[where] = 0
