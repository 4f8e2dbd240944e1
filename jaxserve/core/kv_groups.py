"""Host: `KVGroups`: which positions each KV group keeps, in pages."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class KVGroups:
    """KV groups of a model; group g keeps the same positions in all of its layers.

    A page belongs to one group and has `page_size` positions of each of the group's layers. All groups share one free
    list. A token at position p of a windowed group sees positions (p - window, p], its own included. windows: per
    group, None for full attention.
    """

    windows: tuple[int | None, ...]
    page_size: int

    @property
    def num_groups(self) -> int:
        return len(self.windows)

    @property
    def has_windows(self) -> bool:
        return any(window is not None for window in self.windows)

    @property
    def unwindowed(self) -> list[int]:
        """Groups of layers with full attention."""
        return [g for g, window in enumerate(self.windows) if window is None]

    def first_page[I: (int, np.ndarray)](self, group: int, num_committed: I) -> I:
        """The first page that a token at position `num_committed` or later sees; for an int or elementwise."""
        window = self.windows[group]
        if window is None:
            return 0 * num_committed
        start = num_committed - window + 1
        return (start > 0) * start // self.page_size

    def end_page[I: (int, np.ndarray)](self, num_tokens: I) -> I:
        """One past the last page of the first `num_tokens` positions; for an int or elementwise."""
        return -(-num_tokens // self.page_size)

    def num_pages(self, num_committed: int, num_tokens: int) -> int:
        """Pages of all groups for the windows before `num_committed` and the positions from there to `num_tokens`."""
        end = self.end_page(num_tokens)
        return sum(end - self.first_page(g, num_committed) for g in range(self.num_groups))

    def num_columns(self, group: int, num_columns: int, num_tokens: int) -> int:
        """Table width of `group` if a row has up to `num_tokens` tokens behind its window and groups without a window
        `num_columns`. Both ends may lie within a page, hence two pages more.
        """
        window = self.windows[group]
        return num_columns if window is None else min(num_columns, self.end_page(window + num_tokens) + 2)

    def table_widths(self, num_tokens: int, chunk: int) -> tuple[int, ...]:
        """The most pages that a sequence of `num_tokens`, computed in chunks, holds at once in each group: those of the
        window before its committed length, of the step in flight and of the next one."""
        end_page = self.end_page(num_tokens)
        return tuple(self.num_columns(g, end_page, 2 * chunk) for g in range(self.num_groups))

    def max_sequence_pages(self, num_tokens: int, chunk: int) -> int:
        """The most pages that a sequence of `num_tokens`, computed in chunks, holds at once in all groups together."""
        return sum(self.table_widths(num_tokens, chunk))
