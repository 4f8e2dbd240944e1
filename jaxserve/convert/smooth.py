"""Wiring: SmoothQuant (Xiao et al., arXiv 2211.10438): a part of the activations' scale is moved into the weights.

    s[j] = max |x[j]|^alpha / max |w[:, j]|^(1 - alpha)        folded as in `folded_leaves.py`

The product is the same, but outlying channels of x have less weight when activations are coded with one scale a token.
Each s is rounded to a power of two: folding is exact then in every dtype.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32

from checkpoints.mapping.parts import Part
from jaxserve.convert.folded_leaves import AFTER_NORMS, layer_number
from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.layer_inputs import LARGEST, layer_inputs


@dataclass(frozen=True, slots=True)
class Smoothing:
    """`InputScales`. largest: of each layer, by the names of its matrices, the largest magnitude of each input."""

    largest: tuple[Mapping[str, np.ndarray], ...]
    alpha: float

    @property
    def digest(self) -> str:
        """A name for it."""
        values = [layer[name].tobytes() for layer in self.largest for name in sorted(layer)]
        return hashlib.sha256(b"".join(values)).hexdigest()[:12] + f", alpha {self.alpha}"

    @property
    def matrices(self) -> frozenset[str]:
        """See `InputScales`."""
        return frozenset(AFTER_NORMS.values())

    def of(self, part: Part, name: str, weight: np.ndarray) -> Float[np.ndarray, "D"]:
        """See `InputScales`."""
        of_inputs = self.largest[layer_number(part)][name]
        of_weights = np.max(np.abs(weight), axis=tuple(range(weight.ndim - 1)))
        return powers_of_two(of_inputs, of_weights.astype(np.float32), self.alpha)


def observe(
    model: PureModel, texts: Int32[np.ndarray, "N T"], alpha: float, progress: Callable[[int, int], None]
) -> Smoothing:
    """What is largest over all tokens of the texts. progress: called with the layers done, and all."""
    found = list[Mapping[str, np.ndarray]]()
    for kept in layer_inputs(model.settings, model.params, texts, LARGEST):
        found.append({name: np.asarray(values) for name, values in kept.items()})
        progress(len(found), model.config.num_layers)
    return Smoothing(tuple(found), alpha)


def powers_of_two(
    of_inputs: Float[np.ndarray, "D"], of_weights: Float[np.ndarray, "D"], alpha: float
) -> Float[np.ndarray, "D"]:
    """The scales; 1 where a channel or its weights are all zero."""
    is_used = (of_inputs > 0) & (of_weights > 0)
    one = np.float32(1)
    inputs, weights = np.where(is_used, of_inputs, one), np.where(is_used, of_weights, one)
    return np.exp2(np.rint(alpha * np.log2(inputs) - (1 - alpha) * np.log2(weights))).astype(np.float32)
