"""Host: `Histogram`: counts of values between bounds, as in Prometheus."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """bounds: ascending; a value v counts at the first bound with v <= bound, or above the last one.

    counts: one per bound, and one above the last. sum: of all values. One thread observes; other threads may read at
    any time, and see a sum that differs from the counts by the value being observed.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]):
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add the same value `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        """Values observed."""
        return sum(self.counts)


def scale(low: int, high: int, exponent: int = 0) -> list[float]:
    """1, 2 and 5 of each power of ten from `low` to `high`, times 10 ** exponent."""
    bounds = (digit * 10**power for power in range(len(str(high))) for digit in (1, 2, 5))
    return [float(f"{bound}e{exponent}") for bound in bounds if low <= bound <= high]
