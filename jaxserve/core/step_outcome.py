"""Host: `StepOutcome`: the results of one step, which the runner returns to the scheduler."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """Log-probabilities, from raw logits, of R tokens and of the K likeliest tokens in their places."""

    chosen: np.ndarray  # float32[R]
    ranks: np.ndarray  # int32[R]: 1 is the likeliest
    top_ids: np.ndarray  # int32[R, K]
    top: np.ndarray  # float32[R, K]


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Drafts of rows by round: how many were proposed, and how many the row advanced by beyond its own token."""

    num_proposed: np.ndarray  # int32[S, R]
    num_accepted: np.ndarray  # int32[S, R]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The results of one step, in the order of the plan's rows.

    num_rounds: rounds that ran, fewer than planned if all rows ended earlier. num_tokens[s]: tokens that row s drew,
    the first of tokens[s]; undefined if the row does not sample. is_bad: the token's logits were not finite. logprobs:
    one entry per token, row by row, defined for rows that need it; None if no row does. prompt_logprobs: one entry for
    each target >= 0 of the plan, in order. pooled: for rows that need it, the sum of the hidden states of the row's
    tokens, or the last of them. drafts: of a verify bucket.
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
