"""Host: `TimeWindow`, what happened within the last seconds."""

NUM_CELLS = 10


class TimeWindow:
    """A sum and a count over the last `window_s` seconds, in cells of a tenth of that: the oldest one goes as a whole.

    Moments are seconds on any clock. start_s: when it began to look; by default at the first event. One thread adds;
    others may read at any moment.
    """

    def __init__(self, window_s: float, start_s: float | None = None):
        self._cell_s = window_s / NUM_CELLS
        self._cells = [(-NUM_CELLS, 0.0, 0)] * NUM_CELLS  # cell number, sum, count
        self._start_s = start_s

    def add(self, now_s: float, amount: float, count: int = 1) -> None:
        """`count` events that together make `amount`."""
        if self._start_s is None:
            self._start_s = now_s
        number = int(now_s // self._cell_s)
        place = number % NUM_CELLS
        then, total, events = self._cells[place]
        if then == number:
            amount, count = total + amount, events + count
        self._cells[place] = number, amount, count

    def total(self, now_s: float) -> float:
        """The amounts of the window."""
        return sum(total for total, _ in self._live(now_s))

    def mean(self, now_s: float) -> float | None:
        """Of the window's events; None where there were none."""
        live = self._live(now_s)
        count = sum(count for _, count in live)
        return sum(total for total, _ in live) / count if count else None

    def rate(self, now_s: float) -> float:
        """The amounts of the window a second."""
        return self.total(now_s) / self.covered_s(now_s)

    def covered_s(self, now_s: float) -> float:
        """How long the window is so far; at least one cell."""
        oldest_s = (now_s // self._cell_s - NUM_CELLS + 1) * self._cell_s
        return max(self._cell_s, now_s - max(oldest_s, now_s if self._start_s is None else self._start_s))

    def _live(self, now_s: float) -> list[tuple[float, int]]:
        oldest = int(now_s // self._cell_s) - NUM_CELLS + 1
        return [(total, count) for number, total, count in self._cells if number >= oldest]
