"""Host: `StepOutcome`: the results of one step, which the runner returns to the scheduler."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """Log-probabilities, from raw logits, of R tokens and of the K likeliest tokens in their places."""

    chosen: np.ndarray  # float32[R]
    ranks: np.ndarray  # int32[R]: 1 is the likeliest
    top_ids: np.ndarray  # int32[R, K]
    top: np.ndarray  # float32[R, K]

    def widened(self, width: int, new_width: int) -> "TopLogprobs":
        """Of rows with `width` entries each, with as many more as make `new_width`, which hold zeros."""

        def wide(table: np.ndarray) -> np.ndarray:
            by_row = table.reshape(-1, width, *table.shape[1:])
            padding = [(0, 0), (0, new_width - width), *[(0, 0)] * (table.ndim - 1)]
            return np.pad(by_row, padding).reshape(-1, *table.shape[1:])

        return TopLogprobs(wide(self.chosen), wide(self.ranks), wide(self.top_ids), wide(self.top))


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Drafts of rows by round: how many were proposed, and how many the row advanced by beyond its own token."""

    num_proposed: np.ndarray  # int32[S, R]
    num_accepted: np.ndarray  # int32[S, R]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The results of one step, in the order of the plan's rows.

    num_rounds: rounds that ran, fewer than planned if all rows ended earlier. num_tokens[s]: tokens that row s drew,
    the first of tokens[s]; undefined if the row does not sample. is_bad: the token's logits were not finite, or every
    token was banned. logprobs: one entry per token, row by row, defined for rows that need it; None if no row does.
    prompt_logprobs: one entry for each target >= 0 of the plan, in order. pooled: for rows that need it, the sum of the
    hidden states of the row's tokens, or the last of them. drafts: of a verify bucket.
    """

    step_id: int
    num_rounds: int
    num_tokens: np.ndarray  # int32[S]
    tokens: np.ndarray  # int32[S, M]
    is_bad: np.ndarray  # bool[S, M]
    logprobs: TopLogprobs | None = None
    prompt_logprobs: TopLogprobs | None = None
    pooled: np.ndarray | None = None  # float32[S, D]
    drafts: DraftCounts | None = None

    def widened(self, width: int) -> "StepOutcome":
        """The same, with room for at least so many tokens of each row, in arrays of its own."""
        old = self.tokens.shape[1]
        padding = ((0, 0), (0, max(0, width - old)))
        return replace(
            self,
            num_tokens=self.num_tokens.copy(),
            tokens=np.pad(self.tokens, padding),
            is_bad=np.pad(self.is_bad, padding),
            logprobs=None if self.logprobs is None else self.logprobs.widened(old, max(old, width)),
        )
