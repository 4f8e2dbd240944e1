"""Host: `TokenDeltas`, what one commit added to the sequences."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.sequence import Sequence

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class TokenDeltas:
    """One entry a token, each sequence's in their order; a sequence that has ended says how.

    tokens: the token appended, NO_TOKEN where the sequence ended without one: in an error, or because none was asked.
    is_finished: the sequence ended with this entry, its last.
    """

    sequences: list[Sequence]
    tokens: np.ndarray  # int32[N]
    is_finished: np.ndarray  # bool[N]

    def __len__(self) -> int:
        return len(self.sequences)


def no_deltas() -> TokenDeltas:
    return TokenDeltas([], np.zeros(0, np.int32), np.zeros(0, bool))
