"""Bounds of a back end's error against the float64 reference: one table for the tests and the proof."""

import numpy as np

BOUNDS = {
    # float32 throughout: sums of 64 to 256 products, an exponential and a division, each a few units of 2^-24.
    "float32": 1e-5,
    # The output is rounded to bfloat16, by up to 2^-8 of its size. The probabilities may be too, by up to 2^-8 each,
    # most of which cancels. Queries, keys, values and stored 8-bit numbers are exact in bfloat16.
    "bfloat16": 2**-7,
    # Likewise, with three bits more.
    "float16": 2**-10,
}
"""Largest error by the queries' dtype, whatever the pool's: what is stored is the truth, and a back end multiplies in a
type that holds it."""


def errors(o: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[T, N]: the largest deviation of a head's output, as a share of that output's largest element.

    Zeros, which padding must give, have an error of 0 or infinity; so has what is not a number.
    """
    deviation, size = (np.abs(x).max(-1) for x in (o - expected, expected))
    deviation = np.where(np.isnan(deviation), np.inf, deviation)
    return np.divide(deviation, size, out=np.where(deviation > 0, np.inf, 0.0), where=size > 0)


def are_same_pools(got: np.ndarray, expected: np.ndarray) -> bool:
    """Whether all pages but the scratch page hold the same numbers, and NaN where the other has NaN."""
    return all(
        np.array_equal(got[:, page].astype(np.float32), expected[:, page].astype(np.float32), equal_nan=True)
        for page in range(1, expected.shape[1])
    )
