"""Host: `HttpCounts`: counts HTTP responses by method, route and status."""

from collections import Counter

METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


class HttpCounts:
    """Written and read in the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, handler: str, status: int) -> None:
        """handler: the route's pattern, not the path. Unknown methods count as "other": clients could invent any
        number of paths and methods, and each would become a time series."""
        self._counts[method if method in METHODS else "other", handler, status] += 1

    def items(self) -> list[tuple[tuple[str, str, int], int]]:
        """Pairs of (method, handler, status) and the count."""
        return sorted(self._counts.items())
