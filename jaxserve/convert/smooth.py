"""Wiring: SmoothQuant (Xiao et al., arXiv 2211.10438): a part of the activations' scale is moved into the weights.

    x' = x / s    folded into the norm that makes x        s[j] = max |x[j]|^alpha / max |w[:, j]|^(1 - alpha)
    w' = w · s    the matrices that read x

The product is the same, but outlying channels of x have less weight when activations are coded with one scale a token.
Each s is rounded to a power of two: folding is exact then in every dtype.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32

from checkpoints.loading.leaf_reader import Leaves
from checkpoints.mapping.parts import OUTSIDE, Part
from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.layer_inputs import LARGEST, layer_inputs

MATRICES = {"attn_norm": "qkv", "mlp_norm": "gate_up"}
"""By the norm that makes their inputs."""


@dataclass(frozen=True, slots=True)
class Smoothing:
    """largest: of each layer, by the names of its matrices, the largest magnitude of each input."""

    largest: tuple[Mapping[str, np.ndarray], ...]
    alpha: float

    @property
    def digest(self) -> str:
        """A name for it."""
        values = [layer[name].tobytes() for layer in self.largest for name in sorted(layer)]
        return hashlib.sha256(b"".join(values)).hexdigest()[:12] + f", alpha {self.alpha}"


def observe(
    model: PureModel, texts: Int32[np.ndarray, "N T"], alpha: float, progress: Callable[[int, int], None]
) -> Smoothing:
    """What is largest over all tokens of the texts. progress: called with the layers done, and all."""
    found = list[Mapping[str, np.ndarray]]()
    for kept in layer_inputs(model.settings, model.params, texts, LARGEST):
        found.append({name: np.asarray(values) for name, values in kept.items()})
        progress(len(found), model.config.num_layers)
    return Smoothing(tuple(found), alpha)


class SmoothedLeaves:
    """Leaves of a model (`Leaves`), smoothed. parts: of all layers, in order, after the one outside."""

    def __init__(self, leaves: Leaves, parts: Sequence[Part], smoothing: Smoothing) -> None:
        self._leaves, self._alpha = leaves, smoothing.alpha
        layers = [part.name for part in parts if part.name != OUTSIDE]
        self._largest = dict(zip(layers, smoothing.largest, strict=True))

    def read(self, part: Part, name: str) -> np.ndarray:
        """See `Leaves`."""
        values = self._leaves.read(part, name)
        if part.name in self._largest and name in MATRICES:
            matrix = MATRICES[name]
            return values / self._scales(part, matrix, self._leaves.read(part, matrix))
        if part.name in self._largest and name in MATRICES.values():
            return values * self._scales(part, name, values)
        return values

    def _scales(self, part: Part, matrix: str, weight: np.ndarray) -> Float[np.ndarray, "D"]:
        of_inputs = self._largest[part.name][matrix]
        of_weights = np.max(np.abs(weight), axis=tuple(range(weight.ndim - 1)))
        return powers_of_two(of_inputs, of_weights.astype(np.float32), self._alpha)


def powers_of_two(
    of_inputs: Float[np.ndarray, "D"], of_weights: Float[np.ndarray, "D"], alpha: float
) -> Float[np.ndarray, "D"]:
    """The scales; 1 where a channel or its weights are all zero."""
    is_used = (of_inputs > 0) & (of_weights > 0)
    one = np.float32(1)
    inputs, weights = np.where(is_used, of_inputs, one), np.where(is_used, of_weights, one)
    return np.exp2(np.rint(alpha * np.log2(inputs) - (1 - alpha) * np.log2(weights))).astype(np.float32)
