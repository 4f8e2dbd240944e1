"""Host: `DraftOptions`: how rows may draft in a step, and by which option they gain most.

An option is a verify bucket in which rows have proposers up to a number: those of later numbers take longer, also for
the other rows of the step. It advances a row by the accepted drafts of its proposer and one token.

    a    share of a row's drafts that are accepted if those before them are (`draft_acceptance.py`)
    n    drafts of a pass, one after the other: it advances the row by 1 + a + … + aⁿ tokens on average
         (Leviathan et al., arXiv 2211.17192, equation 1)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.options.speculative_config import MAX_SPECULATIVE_TOKENS

LEAST_GAIN = 1.05
"""Tokens in a given time, over those of decoding, from which on rows draft."""

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


def depth_table(depths: Sequence[Depth]) -> np.ndarray:
    """int[P, drafts]: of each proposer, by the number of a row's drafts."""
    return np.array([[depth(n) for n in range(MAX_SPECULATIVE_TOKENS + 1)] for depth in depths])


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """Of a step that may draft. decode: the bucket without drafts. depths: `depth_table`."""

    decode: Bucket
    candidates: list[Candidate]
    depths: np.ndarray

    def slowdown(self, bucket: Bucket, proposer: int) -> float | None:
        """As it was expected when the step was planned; None where these were no option."""
        return next((c.slowdown for c in self.candidates if (c.bucket, c.proposer) == (bucket, proposer)), None)

    def least_slowdown(self, proposer: int) -> float:
        """Of passes whose rows have proposers up to this one."""
        return min(c.slowdown for c in self.candidates if c.proposer == proposer)

    def best(
        self, acceptance: np.ndarray, may_draft: np.ndarray, *, tried: int | None = None, least: float = 1.0
    ) -> DraftPlan | None:
        """How the rows gain most, all of which draft: it takes no longer, and shows what their drafts are worth. None
        if they gain in no way.

        acceptance: [P, S]. may_draft: bool[S]. tried: a proposer that must be among those of the bucket. least: gain
        over `LEAST_GAIN`.
        """
        best: tuple[float, Candidate, np.ndarray] | None = None
        for candidate in self.candidates:
            if tried is not None and candidate.proposer < tried:
                continue
            depths = self.depths[: candidate.proposer + 1, candidate.bucket.max_drafts].tolist()
            tokens = np.array([_tokens_a_pass(acceptance[p], depth) for p, depth in enumerate(depths)])
            gain = float(tokens.max(axis=0).mean()) / candidate.needed
            if gain >= least and (best is None or gain > best[0]):
                best = gain, candidate, np.argmax(tokens, axis=0).astype(np.int32)
        if best is None:
            return None
        _, candidate, proposers = best
        max_drafts = np.where(may_draft, candidate.bucket.max_drafts, 0).astype(np.int32)
        return DraftPlan(candidate.bucket, max_drafts, tried is not None, proposers)


def _tokens_a_pass(acceptance: np.ndarray, depth: int) -> np.ndarray:
    """Tokens by which a pass advances rows on average: 1 + a + … + a^depth."""
    return np.sum(acceptance[:, None] ** np.arange(depth + 1), axis=1)
