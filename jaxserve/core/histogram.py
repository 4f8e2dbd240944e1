"""Host: `Histogram`, how often values fell between bounds, as Prometheus counts them."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """bounds: ascending; value v counts at the first bound with v <= bound, or beyond the last of them.

    counts: one a bound, and one for what lies beyond. sum: of all values. One thread observes; others may read at any
    moment and see a sum that is ahead of, or behind, the counts by what is being observed just then.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]):
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`count` times the same value."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)


def scale(low: int, high: int, exponent: int = 0) -> list[float]:
    """1, 2 and 5 of each power of ten from `low` to `high`, times 10 ** exponent."""
    bounds = (digit * 10**power for power in range(len(str(high))) for digit in (1, 2, 5))
    return [float(f"{bound}e{exponent}") for bound in bounds if low <= bound <= high]
