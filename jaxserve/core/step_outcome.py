"""Host: `StepOutcome`, what one step produced, which the runner returns to the scheduler."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """Log-probabilities of chosen tokens and of the K likeliest ones, under the raw logits; R rows or tokens."""

    chosen: np.ndarray  # float32[R]
    ranks: np.ndarray  # int32[R]: 1 is the likeliest
    top_ids: np.ndarray  # int32[R, K]
    top: np.ndarray  # float32[R, K]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step produced, in the order of the plan's rows.

    num_rounds: those that ran; fewer than planned when all rows had ended. tokens[s, r]: the token drawn by row s in
    round r, anything where it drew none. is_bad: its logits were not finite. logprobs: one entry a token, row by row,
    meaningful where asked for; None where no row asks. prompt_logprobs: one entry a target of the plan (those >= 0, in
    their order). pooled: where the plan asks, the sum of the hidden states of the row's tokens, or the last of them.
    """

    step_id: int
    num_rounds: int
    tokens: np.ndarray  # int32[S, R]
    is_bad: np.ndarray  # bool[S, R]
    logprobs: TopLogprobs | None = None
    prompt_logprobs: TopLogprobs | None = None
    pooled: np.ndarray | None = None  # float32[S, D]
