"""Host: `PagePool`, who holds which page: a free list, reference counts, and marks of what the prefix cache keeps."""

import numpy as np

SCRATCH_PAGE = 0  # takes the writes of padding rows; never given out


class PagePool:
    """Pages 1 .. num_pages - 1, each free, held by one or more sequences, or cached: kept although nobody holds it.

    At any moment num_free + num_cached + num_referenced == num_pages - 1. A page that the prefix cache keeps is held
    while a sequence has it and cached when none has; it is free again when the cache drops it and nobody holds it.
    The page released last is given out first, while it may still be in the device's caches.
    """

    def __init__(self, num_pages: int):
        if num_pages < 2:
            raise ValueError(f"a pool of {num_pages} pages holds none besides the scratch page; give at least 2")
        self.num_pages = num_pages
        self.num_free = num_pages - 1
        self.num_cached = 0
        self._references = np.zeros(num_pages, np.int32)
        self._is_kept = np.zeros(num_pages, bool)  # by the prefix cache
        self._free = np.arange(num_pages - 1, 0, -1, dtype=np.int32)  # a stack, whose top is at num_free

    @property
    def num_referenced(self) -> int:
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
        """One more reference to each of these held or cached pages, which must differ."""
        is_idle = self._references[ids] < 1
        if is_idle.any():
            if not self._is_kept[ids[is_idle]].all():
                raise ValueError(f"pages {ids[is_idle & ~self._is_kept[ids]].tolist()} are free and cannot be shared")
            self.num_cached -= int(np.count_nonzero(is_idle))
        self._references[ids] += 1

    def release(self, ids: np.ndarray) -> None:
        """One reference less for each entry, which may stand there repeatedly; without any a page is free or cached."""
        pages, counts = np.unique(ids, return_counts=True)
        left = self._references[pages] - counts
        if (left < 0).any():
            raise ValueError(f"pages {pages[left < 0].tolist()} are released more often than they are held")
        self._references[pages] = left
        idle = pages[left == 0]
        is_kept = self._is_kept[idle]
        self.num_cached += int(np.count_nonzero(is_kept))
        self._give_back(idle[~is_kept])

    def keep(self, ids: np.ndarray) -> None:
        """The prefix cache keeps these held pages, which must differ, when nobody holds them any more."""
        if (self._references[ids] < 1).any() or self._is_kept[ids].any():
            raise ValueError(f"of pages {ids.tolist()} some are not held, or kept already")
        self._is_kept[ids] = True

    def drop(self, ids: np.ndarray) -> None:
        """The prefix cache lets go of these pages, which must differ: those that nobody holds are free."""
        if not self._is_kept[ids].all():
            raise ValueError(f"pages {ids[~self._is_kept[ids]].tolist()} are not kept")
        self._is_kept[ids] = False
        idle = ids[self._references[ids] == 0]
        self.num_cached -= len(idle)
        self._give_back(idle)

    def is_kept(self, ids: np.ndarray | slice) -> np.ndarray:
        """Which pages the prefix cache keeps, whoever holds them."""
        return self._is_kept[ids]

    def num_freed_by(self, ids: np.ndarray) -> int:
        """How many pages `release(ids)` would leave to nobody, free or cached."""
        pages, counts = np.unique(ids, return_counts=True)
        return int((self._references[pages] == counts).sum())

    def _give_back(self, ids: np.ndarray) -> None:
        self._free[self.num_free : self.num_free + len(ids)] = ids
        self.num_free += len(ids)
