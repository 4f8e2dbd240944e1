"""Host: the range that the codes of a group of weights span: a scale and a zero point.

    w ≈ scale · (code - zero)        0 <= code, zero < 2^bits

The widest range holds every weight. A narrower one cuts off the largest and has finer steps for all others: of some
ranges the one with the least loss is taken.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, UInt8

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)
"""Of the widest range."""
TINY = float(np.finfo(np.float32).tiny)

Loss = Callable[[Float[np.ndarray, "N G K"]], Float[np.ndarray, "N G"]]
"""Of the errors of the weights of groups."""


def squared(errors: Float[np.ndarray, "N G K"]) -> Float[np.ndarray, "N G"]:
    """The `Loss` by which all weights are alike; infinite for errors beyond 1e19."""
    with np.errstate(over="ignore"):
        return np.square(errors).sum(axis=2, dtype=np.float32)


def by_importance(importance: Float[np.ndarray, "I"], group_len: int) -> Loss:
    """The `Loss` of products with inputs that have nothing in common; importance: the sum of x² of each input x."""
    # Over its mean: a sum of squares in float32 could overflow, and groups without importance have the widest range.
    factors = np.sqrt(importance / max(importance.mean(), TINY)).astype(np.float32).reshape(-1, group_len)
    return lambda errors: squared(errors * factors)


def by_products(hessian: Float[np.ndarray, "I I"], group_len: int) -> Loss:
    """The `Loss` of products with the inputs x of one group; hessian: the sum of x xᵀ."""
    starts = range(0, len(hessian), group_len)
    own = np.stack([hessian[start : start + group_len, start : start + group_len] for start in starts])
    own = (own / max(np.trace(hessian), TINY)).astype(np.float32)

    def loss(errors: Float[np.ndarray, "N G K"]) -> Float[np.ndarray, "N G"]:
        by_group = errors.transpose(1, 0, 2)  # [G, N, K]
        return np.einsum("gnk,gnk->ng", by_group @ own, by_group)

    return loss


def group_ranges(
    groups: Float[np.ndarray, "N G K"], bits: int, loss: Loss = squared, shares: Sequence[float] = SHARES
) -> tuple[Float[np.ndarray, "N G"], UInt8[np.ndarray, "N G"]]:
    """Scales and zero points. 0 lies in every range: groups of zeros have the scale 0."""
    least, most = np.minimum(groups.min(axis=2), 0), np.maximum(groups.max(axis=2), 0)
    best = np.full(least.shape, np.inf, np.float32)
    scales, zeros = np.zeros(least.shape, np.float32), np.zeros(least.shape, np.uint8)
    for number, share in enumerate(shares):
        scale = (share * (most - least) / (2**bits - 1)).astype(np.float32)
        zero = np.rint(-share * least / np.where(scale > 0, scale, 1)).astype(np.uint8)
        rounded = decoded(codes_of(groups, scale[..., None], zero[..., None], bits), scale[..., None], zero[..., None])
        lost = loss(rounded - groups)
        is_better = (lost < best) | (number == 0)  # a first loss that is infinite counts too
        best = np.where(is_better, lost, best)
        scales, zeros = np.where(is_better, scale, scales), np.where(is_better, zero, zeros)
    return scales, zeros


def codes_of(weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int) -> np.ndarray:
    """The nearest codes, uint8."""
    codes = np.rint(weights / np.where(scales > 0, scales, np.float32(1))) + zeros
    return np.clip(codes, 0, 2**bits - 1).astype(np.uint8)


def decoded(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What codes stand for."""
    return (codes.astype(np.float32) - zeros) * scales
