"""Wiring: `LargestInputs`: how large each input of the layers' matrices becomes in texts."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32

from checkpoints.mapping.parts import Part
from jaxserve.convert.folded_leaves import layer_number
from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.layer_inputs import LARGEST, layer_inputs


@dataclass(frozen=True, slots=True)
class LargestInputs:
    """`InputSums`. layers: of each, by the names of its matrices, the largest magnitude of each input."""

    layers: tuple[Mapping[str, np.ndarray], ...]

    @property
    def digest(self) -> str:
        """See `InputSums`."""
        values = [layer[name].tobytes() for layer in self.layers for name in sorted(layer)]
        return hashlib.sha256(b"".join(values)).hexdigest()[:12]

    def of(self, part: Part, name: str) -> Float32[np.ndarray, "D"]:
        """See `InputSums`."""
        return self.layers[layer_number(part)][name]


def largest_inputs(
    model: PureModel, texts: Int32[np.ndarray, "N T"], progress: Callable[[int, int], None]
) -> LargestInputs:
    """What is largest over all tokens of the texts. progress: called with the layers done, and all."""
    found = list[Mapping[str, np.ndarray]]()
    for kept in layer_inputs(model.settings, model.params, texts, LARGEST):
        found.append({name: np.asarray(values) for name, values in kept.items()})
        progress(len(found), model.config.num_layers)
    return LargestInputs(tuple(found))
