"""Host: `TokenDeltas`: the tokens that one commit appended, and the sequences that it ended."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.sequence import Sequence

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class TokenDeltas:
    """One entry per token, in order for each sequence.

    tokens: the token appended, or NO_TOKEN if the sequence ended without one: in an error, after a prompt for which
    nothing is drawn, or at a timeout. is_finished: this is the last entry of its sequence.
    """

    sequences: list[Sequence]
    tokens: np.ndarray  # int32[N]
    is_finished: np.ndarray  # bool[N]

    def __len__(self) -> int:
        return len(self.sequences)

    def with_ended(self, ended: list[Sequence]) -> "TokenDeltas":
        """Add entries for sequences that ended without a token."""
        if not ended:
            return self
        return TokenDeltas(
            self.sequences + ended,
            np.concatenate([self.tokens, np.full(len(ended), NO_TOKEN, np.int32)]),
            np.concatenate([self.is_finished, np.ones(len(ended), bool)]),
        )


def no_deltas() -> TokenDeltas:
    """No entries."""
    return TokenDeltas([], np.zeros(0, np.int32), np.zeros(0, bool))
