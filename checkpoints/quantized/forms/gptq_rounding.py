"""Host: GPTQ (Frantar et al., arXiv 2210.17323): codes of a matrix, each chosen with what the ones before have lost.

    w [out, in]        columns are coded from left to right, in groups that share a scale
    h = sum x xᵀ       over inputs x that the matrix is multiplied by; u: upper triangular, uᵀ u = h⁻¹

    error of column i = (w[:, i] - its code's value) / u[i, i]        w[:, j] -= error · u[i, j]  for all j > i

What a column loses is so made up by those after it, as far as inputs are alike. A group's range (`group_ranges`) is
that of its weights as they are when it begins.
"""

import numpy as np
from jaxtyping import Float, UInt8

from checkpoints.quantized.forms.group_range import codes_of, decoded, group_ranges

DAMPING = 0.01  # of the mean diagonal, added to it: keeps h invertible


def gptq_codes(
    weight: Float[np.ndarray, "N K"], hessian: Float[np.ndarray, "K K"], group_len: int, bits: int
) -> tuple[UInt8[np.ndarray, "N K"], Float[np.ndarray, "N G"], UInt8[np.ndarray, "N G"]]:
    """Codes, and scales and zero points of groups of `group_len` inputs."""
    upper, is_dead = _inverse_factor(hessian)
    rest = weight.astype(np.float64)
    rest[:, is_dead] = 0
    num_out, num_in = weight.shape
    num_groups = num_in // group_len
    codes = np.zeros(weight.shape, np.uint8)
    scales, zeros = np.zeros((num_out, num_groups), np.float32), np.zeros((num_out, num_groups), np.uint8)
    for number in range(num_groups):
        start = number * group_len
        group, own = rest[:, start : start + group_len], upper[start : start + group_len]
        (scale,), (zero,) = (found.T for found in group_ranges(group[:, None].astype(np.float32), bits))
        scales[:, number], zeros[:, number] = scale, zero
        errors = np.empty_like(group)
        for i in range(group_len):
            code = codes_of(group[:, i], scale, zero, bits)
            codes[:, start + i] = code
            errors[:, i] = (group[:, i] - decoded(code, scale, zero)) / own[i, start + i]
            group[:, i + 1 :] -= errors[:, i, None] * own[i, start + i + 1 : start + group_len]
        rest[:, start + group_len :] -= errors @ own[:, start + group_len :]
    return codes, scales, zeros


def _inverse_factor(hessian: Float[np.ndarray, "K K"]) -> tuple[Float[np.ndarray, "K K"], np.ndarray]:
    """u of h, which is damped; and which inputs are always zero."""
    h = hessian.astype(np.float64)
    diagonal = np.diagonal(h)
    is_dead = diagonal <= 0
    added = DAMPING * diagonal.mean()
    h = h + np.diag(np.where(is_dead, 1.0, added if added > 0 else 1.0))
    return np.linalg.cholesky(np.linalg.inv(h)).T, is_dead
