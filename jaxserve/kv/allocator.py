"""Host: `PagePool`, who may write to which page: a free list and reference counts."""

import numpy as np

SCRATCH_PAGE = 0  # takes the writes of padding rows; never given out


class PagePool:
    """Pages 1 .. num_pages - 1, each free or held by one or more sequences.

    At any moment num_free + num_cached + num_held == num_pages - 1; pages are not cached once nobody holds them.
    The page released last is given out first, while it may still be in the device's caches.
    """

    def __init__(self, num_pages: int):
        if num_pages < 2:
            raise ValueError(f"a pool of {num_pages} pages holds none besides the scratch page; give at least 2")
        self.num_pages = num_pages
        self.num_free = num_pages - 1
        self.num_cached = 0
        self._references = np.zeros(num_pages, np.int32)
        self._free = np.arange(num_pages - 1, 0, -1, dtype=np.int32)  # a stack, whose top is at num_free

    @property
    def num_held(self) -> int:
        return self.num_pages - 1 - self.num_free - self.num_cached

    @property
    def free_pages(self) -> np.ndarray:
        """The free pages; the last is given out next."""
        return self._free[: self.num_free]

    def references(self, ids: np.ndarray | slice) -> np.ndarray:
        """How many sequences hold each page."""
        return self._references[ids]

    def allocate(self, count: int) -> np.ndarray | None:
        """`count` free pages with one reference each, or None (and nothing happened) when there are fewer."""
        if count > self.num_free:
            return None
        self.num_free -= count
        ids = self._free[self.num_free : self.num_free + count].copy()
        self._references[ids] = 1
        return ids

    def retain(self, ids: np.ndarray) -> None:
        """One more reference to each of these held pages, which must differ."""
        if (self._references[ids] < 1).any():
            raise ValueError(f"pages {ids[self._references[ids] < 1].tolist()} are free and cannot be shared")
        self._references[ids] += 1

    def release(self, ids: np.ndarray) -> None:
        """One reference less for each entry; a page without references is free. A page may stand there repeatedly."""
        pages, counts = np.unique(ids, return_counts=True)
        left = self._references[pages] - counts
        if (left < 0).any():
            raise ValueError(f"pages {pages[left < 0].tolist()} are released more often than they are held")
        self._references[pages] = left
        freed = pages[left == 0]
        self._free[self.num_free : self.num_free + len(freed)] = freed
        self.num_free += len(freed)

    def num_freed_by(self, ids: np.ndarray) -> int:
        """How many pages `release(ids)` would free."""
        pages, counts = np.unique(ids, return_counts=True)
        return int((self._references[pages] == counts).sum())
