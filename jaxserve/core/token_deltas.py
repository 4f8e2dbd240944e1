"""Host: `TokenDeltas`, what one commit added to the sequences."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.sequence import Sequence

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class TokenDeltas:
    """One entry a token, each sequence's in their order; a sequence that has ended says how.

    tokens: the token appended, NO_TOKEN where the sequence ended without one: in an error, because none was asked, or
    because its time was over.
    is_finished: the sequence ended with this entry, its last.
    """

    sequences: list[Sequence]
    tokens: np.ndarray  # int32[N]
    is_finished: np.ndarray  # bool[N]

    def __len__(self) -> int:
        return len(self.sequences)

    def with_ended(self, ended: list[Sequence]) -> "TokenDeltas":
        """With entries for sequences that have ended without a token."""
        if not ended:
            return self
        return TokenDeltas(
            self.sequences + ended,
            np.concatenate([self.tokens, np.full(len(ended), NO_TOKEN, np.int32)]),
            np.concatenate([self.is_finished, np.ones(len(ended), bool)]),
        )


def no_deltas() -> TokenDeltas:
    return TokenDeltas([], np.zeros(0, np.int32), np.zeros(0, bool))
