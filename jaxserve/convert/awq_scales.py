"""Wiring: AWQ (Lin et al., arXiv 2306.00978): inputs that are large have finer steps, since their errors count more.

    s[j] = (mean x[j]²)^(alpha / 2), over its geometric middle; folded as in `folded_leaves.py`, also into up
    loss = tr(e · h · eᵀ)        e = w - Q(w · s) / s,   h = sum x xᵀ over inputs x of the matrix

Of some alphas the one with the least loss is taken, for each matrix; with 0 nothing is scaled.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from checkpoints.mapping.parts import Part
from checkpoints.quantized.forms.group_form import BITS
from checkpoints.quantized.forms.group_range import SHARES, by_products, codes_of, decoded, group_ranges
from checkpoints.quantized.forms.written_form import pieces_of
from jaxserve.convert.folded_leaves import AFTER_NORMS, DOWN
from jaxserve.convert.layer_sums import LayerSums

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


class AwqScales:
    """`InputScales`. hessians: of `PRODUCTS`. Those of the layer that was asked for last are kept."""

    def __init__(self, hessians: LayerSums, group_len: int) -> None:
        self._hessians, self._group_len = hessians, group_len
        self._part, self._found = "", dict[str, Float[np.ndarray, "D"]]()

    @property
    def digest(self) -> str:
        """See `InputScales`."""
        return self._hessians.digest

    @property
    def matrices(self) -> frozenset[str]:
        """See `InputScales`."""
        return frozenset({*AFTER_NORMS.values(), DOWN})

    def of(self, part: Part, name: str, weight: Float[np.ndarray, "*out D"]) -> Float[np.ndarray, "D"]:
        """See `InputScales`."""
        if self._part != part.name:
            self._part, self._found = part.name, {}
        if name not in self._found:
            rows = weight.reshape(-1, weight.shape[-1]).astype(np.float32, copy=False)
            self._found[name] = best_scales(rows, self._hessians.of(part, name), self._group_len)
        return self._found[name]

    def folded(self, part: Part, name: str) -> Float[np.ndarray, "D D"]:
        """The sum of x' x'ᵀ over inputs x' = x / s of a matrix whose scales were asked for before, or that has none."""
        hessian = self._hessians.of(part, name)
        return _folded(hessian, self._found[name]) if name in self.matrices else hessian


@dataclass(frozen=True, slots=True)
class FoldedHessians:
    """`InputSums` of x xᵀ, of the model with the scales folded in."""

    scales: AwqScales

    @property
    def digest(self) -> str:
        """See `InputSums`."""
        return self.scales.digest

    def of(self, part: Part, name: str) -> np.ndarray:
        """See `InputSums`."""
        return self.scales.folded(part, name)


def best_scales(
    weight: Float[np.ndarray, "N D"], hessian: Float[np.ndarray, "D D"], group_len: int
) -> Float[np.ndarray, "D"]:
    """Of one matrix, whose inputs are a multiple of group_len."""
    sizes = np.sqrt(np.diagonal(hessian).astype(np.float64))
    sizes = np.where(sizes > 0, sizes, 1.0)
    tried = [(sizes / np.exp(np.log(sizes).mean())) ** alpha for alpha in ALPHAS]
    losses = [_loss(weight, hessian, scales.astype(np.float32), group_len) for scales in tried]
    return tried[int(np.argmin(losses))].astype(np.float32)


def _loss(
    weight: Float[np.ndarray, "N D"], hessian: Float[np.ndarray, "D D"], scales: Float[np.ndarray, "D"], group_len: int
) -> float:
    loss = by_products(_folded(hessian, scales), group_len)
    lost = 0.0
    for rows in pieces_of(weight):
        groups = (rows * scales).reshape(len(rows), -1, group_len)
        steps, zeros = (found[..., None] for found in group_ranges(groups, BITS, loss, SHARES[::2]))
        errors = rows - decoded(codes_of(groups, steps, zeros, BITS), steps, zeros).reshape(rows.shape) / scales
        lost += float(np.sum((errors @ hessian) * errors, dtype=np.float64))
    return lost


def _folded(hessian: Float[np.ndarray, "D D"], scales: Float[np.ndarray, "D"]) -> Float[np.ndarray, "D D"]:
    return hessian / scales / scales[:, None]
