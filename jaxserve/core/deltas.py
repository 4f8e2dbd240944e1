"""Host: `TokenDeltas`, what one commit added to the sequences."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.sequence import Sequence

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class TokenDeltas:
    """One entry a sequence that drew a token or ended; a sequence that has ended says how.

    tokens: the token appended, NO_TOKEN where the sequence ended without one: in an error, or because none was asked.
    """

    sequences: list[Sequence]
    tokens: np.ndarray  # int32[N]
    is_finished: np.ndarray  # bool[N]

    def __len__(self) -> int:
        return len(self.sequences)


def no_deltas() -> TokenDeltas:
    return TokenDeltas([], np.zeros(0, np.int32), np.zeros(0, bool))
