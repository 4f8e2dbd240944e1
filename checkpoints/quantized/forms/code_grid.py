"""Host: `CodeGrid`: the values that the codes of a group of weights may stand for.

They follow from numbers that each group has of its own, which are chosen before the codes.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float, UInt8

from checkpoints.quantized.forms.group_range import Loss, codes_of, decoded, group_ranges

OfGroups = tuple[np.ndarray, ...]
"""Numbers of the groups: arrays [N, G], or what broadcasts with weights."""


class CodeGrid(Protocol):
    """Of one kind of codes."""

    def of_groups(self, groups: Float[np.ndarray, "N G K"], loss: Loss) -> OfGroups:
        """Those with the least loss."""
        ...

    def codes(self, weights: np.ndarray, own: OfGroups) -> UInt8[np.ndarray, "..."]:
        """The nearest ones."""
        ...

    def values(self, codes: np.ndarray, own: OfGroups) -> np.ndarray:
        """What codes stand for."""
        ...


@dataclass(frozen=True, slots=True)
class IntGrid:
    """A `CodeGrid` of integers, with a scale and a zero point of each group (`group_range.py`)."""

    bits: int

    def of_groups(self, groups: Float[np.ndarray, "N G K"], loss: Loss) -> OfGroups:
        """See `CodeGrid`."""
        return group_ranges(groups, self.bits, loss)

    def codes(self, weights: np.ndarray, own: OfGroups) -> UInt8[np.ndarray, "..."]:
        """See `CodeGrid`."""
        scales, zeros = own
        return codes_of(weights, scales, zeros, self.bits)

    def values(self, codes: np.ndarray, own: OfGroups) -> np.ndarray:
        """See `CodeGrid`."""
        scales, zeros = own
        return decoded(codes, scales, zeros)
