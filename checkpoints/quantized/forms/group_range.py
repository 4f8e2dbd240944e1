"""Host: the range that the codes of a group of weights span: a scale and a zero point.

    w ≈ scale · (code - zero)        0 <= code, zero < 2^bits

The widest range holds every weight. A narrower one cuts off the largest and has finer steps for all others: of some
ranges the one with the least error is taken.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)
"""Of the widest range."""
TINY = float(np.finfo(np.float32).tiny)


def group_ranges(
    groups: Float[np.ndarray, "N G K"],
    bits: int,
    shares: Sequence[float] = SHARES,
    importance: Float[np.ndarray, "G K"] | None = None,
) -> tuple[Float[np.ndarray, "N G"], UInt8[np.ndarray, "N G"]]:
    """Scales and zero points. 0 lies in every range: groups of zeros have the scale 0.

    importance: of each input, by which its squared error is multiplied.
    """
    # Over its mean: a sum of squares in float32 could overflow, and groups without importance have the widest range.
    factors = None if importance is None else (importance / max(importance.mean(), TINY)).astype(np.float32)
    least, most = np.minimum(groups.min(axis=2), 0), np.maximum(groups.max(axis=2), 0)
    best = np.full(least.shape, np.inf, np.float32)
    scales, zeros = np.zeros(least.shape, np.float32), np.zeros(least.shape, np.uint8)
    for share in shares:
        scale = (share * (most - least) / (2**bits - 1)).astype(np.float32)
        zero = np.rint(-share * least / np.where(scale > 0, scale, 1)).astype(np.uint8)
        rounded = decoded(codes_of(groups, scale[..., None], zero[..., None], bits), scale[..., None], zero[..., None])
        squares = np.square(rounded - groups)
        errors = (squares if factors is None else squares * factors).sum(axis=2, dtype=np.float32)
        is_better = errors < best
        best = np.where(is_better, errors, best)
        scales, zeros = np.where(is_better, scale, scales), np.where(is_better, zero, zeros)
    return scales, zeros


def codes_of(weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray, bits: int) -> np.ndarray:
    """The nearest codes, uint8."""
    codes = np.rint(weights / np.where(scales > 0, scales, np.float32(1))) + zeros
    return np.clip(codes, 0, 2**bits - 1).astype(np.uint8)


def decoded(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What codes stand for."""
    return (codes.astype(np.float32) - zeros) * scales
