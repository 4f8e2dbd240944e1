"""Wiring: SmoothQuant (Xiao et al., arXiv 2211.10438): a part of the activations' scale is moved into the weights.

    s[j] = max |x[j]|^alpha / max |w[:, j]|^(1 - alpha)        folded as in `folded_leaves.py`

The product is the same, but outlying channels of x have less weight when activations are coded with one scale a token.
Each s is rounded to a power of two: folding is exact then in every dtype.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from checkpoints.mapping.parts import Part
from jaxserve.convert.folded_leaves import AFTER_NORMS
from jaxserve.convert.layer_sums import LayerSums


@dataclass(frozen=True, slots=True)
class Smoothing:
    """`InputScales`. largest: of `LARGEST`."""

    largest: LayerSums
    alpha: float

    @property
    def digest(self) -> str:
        """A name for it."""
        return f"{self.largest.digest}, alpha {self.alpha}"

    @property
    def matrices(self) -> frozenset[str]:
        """See `InputScales`."""
        return frozenset(AFTER_NORMS.values())

    def of(self, part: Part, name: str, weight: np.ndarray) -> Float[np.ndarray, "D"]:
        """See `InputScales`."""
        of_weights = np.max(np.abs(weight), axis=tuple(range(weight.ndim - 1)))
        return powers_of_two(self.largest.of(part, name), of_weights.astype(np.float32), self.alpha)


def powers_of_two(
    of_inputs: Float[np.ndarray, "D"], of_weights: Float[np.ndarray, "D"], alpha: float
) -> Float[np.ndarray, "D"]:
    """The scales; 1 where a channel or its weights are all zero."""
    is_used = (of_inputs > 0) & (of_weights > 0)
    one = np.float32(1)
    inputs, weights = np.where(is_used, of_inputs, one), np.where(is_used, of_weights, one)
    return np.exp2(np.rint(alpha * np.log2(inputs) - (1 - alpha) * np.log2(weights))).astype(np.float32)
