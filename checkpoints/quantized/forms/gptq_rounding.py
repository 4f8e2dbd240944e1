"""Host: GPTQ (Frantar et al., arXiv 2210.17323): codes of a matrix, each chosen with what the ones before have lost.

    w [out, in]        columns are coded one after the other, the most important first (act-order)
    h = sum x xᵀ       over inputs x that the matrix is multiplied by; h[i, i] is the importance of column i
    u: upper triangular, uᵀ u = h⁻¹, of columns in the order of coding

    error of column i = (w[:, i] - its code's value) / u[i, i]        w[:, j] -= error · u[i, j]  for all j after i

What a column loses is so made up by those after it, as far as inputs are alike. Rows do not depend on each other.
Groups are those of inputs as they lie, so files need no order of columns. Their ranges are chosen before, by the
importance of what they hold: with SmolLM2, 4 bits and groups of 64 the perplexity is 1.05 times that of the dense
model, and 1.14 times without order and importance.
"""

import numpy as np
from jaxtyping import Float

from checkpoints.quantized.forms.code_grid import CodeGrid
from checkpoints.quantized.forms.group_range import by_importance

DAMPING = 0.01  # of the mean diagonal, added to it: keeps h invertible
BLOCK = 128  # columns after which all others are corrected at once, in one product


class GptqRounding:
    """Of matrices with the same inputs, some rows at a time. hessian: h, in groups of `group_len` inputs."""

    def __init__(self, hessian: Float[np.ndarray, "K K"], group_len: int, grid: CodeGrid) -> None:
        self._importance = np.diagonal(hessian).astype(np.float64)
        self._order = np.argsort(-self._importance, kind="stable")
        self._upper = _inverse_factor(hessian[np.ix_(self._order, self._order)].astype(np.float64))
        self._loss = by_importance(self._importance, group_len)
        self._group_len, self._grid = group_len, grid

    def codes(self, weight: Float[np.ndarray, "N K"]) -> tuple[np.ndarray, ...]:
        """Of rows: codes [N, K], and the numbers of the groups, as `grid.of_groups` chooses them."""
        # What nothing is multiplied by would widen its group's range.
        weight = np.where(self._importance > 0, weight, 0)
        of_groups = self._grid.of_groups(weight.reshape(len(weight), -1, self._group_len), self._loss)
        return self._rounded(weight[:, self._order].astype(np.float64), of_groups), *of_groups

    def _rounded(self, rest: Float[np.ndarray, "N K"], of_groups: tuple[np.ndarray, ...]) -> np.ndarray:
        """rest: the weights in the order of coding, which are overwritten."""
        codes = np.zeros(rest.shape, np.uint8)
        for start in range(0, len(self._order), BLOCK):
            columns = self._order[start : start + BLOCK]
            block, own = rest[:, start : start + BLOCK], self._upper[start : start + BLOCK, start:]
            errors = np.empty_like(block)
            for i, column in enumerate(columns):
                group = tuple(numbers[:, column // self._group_len] for numbers in of_groups)
                code = self._grid.codes(block[:, i], group)
                codes[:, column] = code
                errors[:, i] = (block[:, i] - self._grid.values(code, group)) / own[i, i]
                block[:, i + 1 :] -= errors[:, i, None] * own[i, i + 1 : len(columns)]
            rest[:, start + BLOCK :] -= errors @ own[:, BLOCK:]
        return codes


def _inverse_factor(h: Float[np.ndarray, "K K"]) -> Float[np.ndarray, "K K"]:
    """u of h, which is damped, ten times as much where sums that were rounded make it indefinite. h is overwritten."""
    damping, diagonal = DAMPING, np.diagonal(h).copy()
    while True:
        added = damping * diagonal.mean()
        np.fill_diagonal(h, diagonal + np.where(diagonal > 0, added if added > 0 else 1.0, 1.0))
        try:
            # h = v vᵀ with an upper v, from the lower factor of h backwards; then u is v⁻¹.
            v = np.linalg.cholesky(h[::-1, ::-1])[::-1, ::-1]
        except np.linalg.LinAlgError:
            damping *= 10
        else:
            del h  # 1 GB with 11,008 inputs, and the inverse needs three such matrices besides v
            return np.triu(np.linalg.inv(v))
