"""Host: the codes of NF4 (Dettmers et al., QLoRA, arXiv 2305.14314)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from checkpoints.quantized.forms.code_grid import OfGroups
from checkpoints.quantized.forms.group_range import SHARES, Loss

# The quantiles of the normal distribution, scaled to [-1, 1] (appendix E of the paper).
VALUES = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
_MIDDLES = (VALUES[1:] + VALUES[:-1]) / 2


@dataclass(frozen=True, slots=True)
class Nf4Grid:
    """A `CodeGrid`: a factor of each group, times `VALUES`."""

    def of_groups(self, groups: Float[np.ndarray, "N G K"], loss: Loss) -> OfGroups:
        """See `CodeGrid`. Of some shares of the largest value, that with the least loss."""
        most = largest(groups)
        best, factors = np.inf, most
        for share in SHARES:
            factor = (share * most).astype(np.float32)
            own = (factor[..., None],)
            lost = loss(self.values(self.codes(groups, own), own) - groups)
            factors, best = np.where(lost < best, factor, factors), np.minimum(lost, best)
        return (factors,)

    def codes(self, weights: np.ndarray, own: OfGroups) -> UInt8[np.ndarray, "..."]:
        """See `CodeGrid`."""
        (factors,) = own
        return np.searchsorted(_MIDDLES, weights / np.where(factors > 0, factors, np.float32(1))).astype(np.uint8)

    def values(self, codes: np.ndarray, own: OfGroups) -> np.ndarray:
        """See `CodeGrid`."""
        (factors,) = own
        return VALUES[codes] * factors


def largest(groups: Float[np.ndarray, "N G K"]) -> Float[np.ndarray, "N G"]:
    """Of each group, without signs: the factor with which all weights lie among the values."""
    return np.max(np.abs(groups), axis=2)
