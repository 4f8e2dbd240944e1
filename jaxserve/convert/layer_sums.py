"""Wiring: `LayerSums`: what the matrices of each layer are multiplied by in texts, layer after layer."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Int32

from checkpoints.errors import CheckpointError
from checkpoints.mapping.parts import Part
from jaxserve.convert.folded_leaves import layer_number
from jaxserve.engine.pure_model import PureModel
from jaxserve.functional.layer_inputs import Keep, Kept, layer_inputs
from pallas_kernels.matmul.cpu_products import cpu_rule


class InputSums(Protocol):
    """What a `CalibratedForm` needs: sums over inputs of matrices, or what is largest in them."""

    @property
    def digest(self) -> str:
        """A name for what they were observed in."""
        ...

    def of(self, part: Part, name: str) -> np.ndarray:
        """Of a leaf of a layer's part; layers are asked for in order."""
        ...


class LayerSums:
    """`InputSums` over all tokens of texts: of x xᵀ (`PRODUCTS`), or the largest magnitudes (`LARGEST`). load: of the
    model, called when the first layer is asked for. One layer's are in memory. They are those of the model as it is,
    not with the layers before already coded. Raises `CheckpointError` for sums that are not finite."""

    def __init__(self, load: Callable[[], PureModel], texts: Int32[np.ndarray, "N T"], keep: Keep) -> None:
        self._layers = _layers(load, texts, keep)
        self._number, self._kept = -1, Kept()
        # Another device adds in another order, and what is chosen by the sums may differ.
        device = cpu_rule().name if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
        self.digest = f"{hashlib.sha256(texts.tobytes()).hexdigest()[:12]}, {device}, jax {jax.__version__}"

    def of(self, part: Part, name: str) -> np.ndarray:
        """Of a leaf of a layer's part, [in, in] or [in]. Raises ValueError for a layer before the last one."""
        number = layer_number(part)
        if number < self._number:
            raise ValueError(f"layer {number} is asked for after layer {self._number}")
        while self._number < number:
            self._kept, self._number = next(self._layers), self._number + 1
        sums = np.asarray(self._kept[name])
        if not np.isfinite(sums).all():
            raise CheckpointError(f"layer {number}: what {name} is multiplied by is not finite; try --dtype float32")
        return sums


def _layers(load: Callable[[], PureModel], texts: Int32[np.ndarray, "N T"], keep: Keep) -> Iterator[Kept]:
    yield from _of_model(load(), texts, keep)


def _of_model(model: PureModel, texts: Int32[np.ndarray, "N T"], keep: Keep) -> Iterator[Kept]:
    """Holds no model: `layer_inputs` lets go of its embedding and head."""
    return layer_inputs(model.settings, model.params, texts, keep)
