"""Host: the scales of rows of E4M3 codes (FP8: Micikevicius et al., arXiv 2209.05433).

The relative error of a float depends on where it lies between two powers of two. So scales from the widest, by which
the largest value has the largest code, to almost twice that are tried, and the one with the least squared error is
taken; twice a scale gives the same numbers again. The matrices of SmolLM2, with rows of 576 and 1536 values, have 14 %
less squared error than with the widest, and rows of 4096 normal values 5 % less. SmolLM2's perplexity is 1.010 times
that of the dense model, not 1.022.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

LARGEST = 448.0  # of E4M3
NUM_TRIED = 16
"""Each takes 2 ns a value. With 32, SmolLM2 has 2 % less error again, and no smaller perplexity."""
FACTORS = tuple(2 ** (i / NUM_TRIED) for i in range(NUM_TRIED))
"""Of the widest scale."""
VALUES_AT_ONCE = 2**17
"""Whose temporary arrays are in a processor's caches: more than twice as fast as with 2^22."""

_EXPONENT, _FRACTION, _KEPT = 0xFF << 23, 23, 3  # of float32, and the bits of a fraction that E4M3 keeps
_LEAST_EXPONENT = (127 - 6) << 23  # smaller values are subnormal: multiples of 2^-9


def row_scales(rows: Float[np.ndarray, "*N I"], factors: Sequence[float] = FACTORS) -> Float[np.ndarray, "*N"]:
    """float32, of float32 rows; 0 of rows of zeros. A value that is not finite makes its row's scale so."""
    flat = rows.reshape(-1, rows.shape[-1])
    scales = np.empty(len(flat), np.float32)
    step = max(1, VALUES_AT_ONCE // flat.shape[1])
    with np.errstate(invalid="ignore"):  # inf / inf
        for start in range(0, len(flat), step):
            scales[start : start + step] = _of_few(np.abs(flat[start : start + step]), factors)
    return scales.reshape(rows.shape[:-1])


def _of_few(sizes: Float[np.ndarray, "N I"], factors: Sequence[float]) -> Float[np.ndarray, "N"]:
    widest = sizes.max(axis=1) / np.float32(LARGEST)
    best, scales = np.full_like(widest, np.inf), widest
    for factor in factors:
        scale = widest * np.float32(factor)
        values = sizes / np.where(scale > 0, scale, np.float32(1))[:, None]
        errors = values - nearest(values)
        # In units of the widest scale: squares of large weights could overflow.
        lost = np.einsum("ni,ni->n", errors, errors) * np.float32(factor * factor)
        scales, best = np.where(lost < best, scale, scales), np.minimum(lost, best)
    return scales


def nearest(values: Float[np.ndarray, "N I"]) -> Float[np.ndarray, "N I"]:
    """The E4M3 numbers next to float32 values that are not negative, at most 448; ties to even. A cast to FP8 and back
    takes five times as long.

    Added to 2^20 times the power of two below it, a value loses the bits that E4M3 has not.
    """
    exponents = np.maximum(values.view(np.int32) & _EXPONENT, _LEAST_EXPONENT)
    powers = (exponents + ((_FRACTION - _KEPT) << _FRACTION)).view(np.float32)
    return np.minimum((values + powers) - powers, np.float32(LARGEST))
