"""Wiring: `FoldedLeaves`: a model whose inputs of some matrices are divided by scales, and their weights multiplied.

    x' = x / s    folded into what makes x: a norm, or for the inputs of down the rows of up
    w' = w · s    the matrices that read x

The products are the same. Scales are chosen for the codes of w' (`awq_scales.py`) or of x' (`smooth.py`).
"""

from typing import Protocol

import numpy as np
from jaxtyping import Float

from checkpoints.loading.leaf_reader import Leaves
from checkpoints.mapping.parts import OUTSIDE, Part

AFTER_NORMS = {"attn_norm": "qkv", "mlp_norm": "gate_up"}
"""Matrices by the norm that makes their inputs."""
GATE_UP, DOWN = "gate_up", "down"


class InputScales(Protocol):
    """Scales of the inputs of matrices."""

    @property
    def digest(self) -> str:
        """A name for them."""
        ...

    @property
    def matrices(self) -> frozenset[str]:
        """Those whose inputs have scales: of `AFTER_NORMS` and `DOWN`."""
        ...

    def of(self, part: Part, name: str, weight: Float[np.ndarray, "*out D"]) -> Float[np.ndarray, "D"]:
        """Of one of `matrices` of a layer's part; layers are asked for in order."""
        ...


class FoldedLeaves:
    """Leaves of a model (`Leaves`) with the scales folded in."""

    def __init__(self, leaves: Leaves, scales: InputScales) -> None:
        self._leaves, self._scales = leaves, scales

    def read(self, part: Part, name: str) -> np.ndarray:
        """See `Leaves`."""
        values = self._leaves.read(part, name)
        if part.name == OUTSIDE:
            return values
        if name in AFTER_NORMS:
            return values / self._of(part, AFTER_NORMS[name])
        if name not in self._scales.matrices:
            return values
        values = values * self._scales.of(part, name, values)
        if name == GATE_UP and DOWN in self._scales.matrices:
            values[1] /= self._of(part, DOWN)[:, None]
        return values

    def _of(self, part: Part, matrix: str) -> Float[np.ndarray, "D"]:
        return self._scales.of(part, matrix, self._leaves.read(part, matrix))


def layer_number(part: Part) -> int:
    """Of a layer's part."""
    return int(part.name.rpartition("-")[2])
