"""Host: `TimeWindow`: sums, means and rates over the last seconds."""

NUM_CELLS = 10


class TimeWindow:
    """Sum and count of events in the last `window_s` seconds, in ten cells, of which the oldest expires as a whole.

    Times are seconds on any clock. start_s: when recording began, by default at the first event. One thread adds; other
    threads may read at any time.
    """

    def __init__(self, window_s: float, start_s: float | None = None):
        self._cell_s = window_s / NUM_CELLS
        self._cells = [(-NUM_CELLS, 0.0, 0)] * NUM_CELLS  # cell number, sum, count
        self._start_s = start_s

    def add(self, now_s: float, amount: float, count: int = 1) -> None:
        """Add `count` events with a total of `amount`."""
        if self._start_s is None:
            self._start_s = now_s
        number = int(now_s // self._cell_s)
        place = number % NUM_CELLS
        then, total, events = self._cells[place]
        if then == number:
            amount, count = total + amount, events + count
        self._cells[place] = number, amount, count

    def total(self, now_s: float) -> float:
        """Sum of the amounts in the window."""
        return sum(total for total, _ in self._live(now_s))

    def mean(self, now_s: float) -> float | None:
        """Mean amount per event in the window; None without events."""
        live = self._live(now_s)
        count = sum(count for _, count in live)
        return sum(total for total, _ in live) / count if count else None

    def rate(self, now_s: float) -> float:
        """Amount per second in the window."""
        return self.total(now_s) / self.covered_s(now_s)

    def covered_s(self, now_s: float) -> float:
        """Seconds that the window covers so far, at least one cell."""
        oldest_s = (now_s // self._cell_s - NUM_CELLS + 1) * self._cell_s
        return max(self._cell_s, now_s - max(oldest_s, now_s if self._start_s is None else self._start_s))

    def _live(self, now_s: float) -> list[tuple[float, int]]:
        oldest = int(now_s // self._cell_s) - NUM_CELLS + 1
        return [(total, count) for number, total, count in self._cells if number >= oldest]
