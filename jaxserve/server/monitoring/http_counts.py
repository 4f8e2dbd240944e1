"""Host: `HttpCounts`, how many requests were answered, by method, route and status."""

from collections import Counter

METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


class HttpCounts:
    """Counted in the event loop, and read there."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, handler: str, status: int) -> None:
        """handler: the route's pattern, of which there are few, not the path. Methods are few here too: strangers
        could make up any number of others."""
        self._counts[method if method in METHODS else "other", handler, status] += 1

    def items(self) -> list[tuple[tuple[str, str, int], int]]:
        """(method, handler, status) and how often."""
        return sorted(self._counts.items())
