"""Host: `PagePool`: a free list, reference counts, and the pages that are kept without references: cached ones."""

import numpy as np

SCRATCH_PAGE = 0  # takes the writes of padding rows; never allocated


class PagePool:
    """Pages 1 .. num_pages - 1, each free, referenced by sequences, or cached: kept without references.

    num_free + num_cached + num_referenced == num_pages - 1 at any time. A page that the prefix cache keeps, or that
    holds an adapter, is referenced while a sequence has it and cached otherwise; it is free again when it was dropped
    and no sequence references it. The page released last is allocated first, as it may still be in the device's caches.
    """

    def __init__(self, num_pages: int):
        if num_pages < 2:
            raise ValueError(f"a pool of {num_pages} pages holds only the scratch page; give at least 2")
        self.num_pages = num_pages
        self.num_free = num_pages - 1
        self.num_cached = 0
        self._references = np.zeros(num_pages, np.int32)
        self._is_kept = np.zeros(num_pages, bool)  # by the prefix cache, or for adapters
        self._free = np.arange(num_pages - 1, 0, -1, dtype=np.int32)  # a stack, whose top is at num_free

    @property
    def num_referenced(self) -> int:
        """Pages that at least one sequence references, or an adapter in use."""
        return self.num_pages - 1 - self.num_free - self.num_cached

    @property
    def free_pages(self) -> np.ndarray:
        """The free pages; the last is allocated next."""
        return self._free[: self.num_free]

    def references(self, ids: np.ndarray | slice) -> np.ndarray:
        """How many sequences reference each page."""
        return self._references[ids]

    def is_kept(self, ids: np.ndarray | slice) -> np.ndarray:
        """Which pages are kept, referenced or not."""
        return self._is_kept[ids]

    def allocate(self, count: int) -> np.ndarray | None:
        """int32[count]: free pages, now with one reference each; None, without an effect, if fewer are free."""
        if count > self.num_free:
            return None
        self.num_free -= count
        ids = self._free[self.num_free : self.num_free + count].copy()
        self._references[ids] = 1
        return ids

    def retain(self, ids: np.ndarray) -> None:
        """Add a reference to each of these distinct pages, which must be referenced or cached."""
        is_idle = self._references[ids] < 1
        if is_idle.any():
            if not self._is_kept[ids[is_idle]].all():
                raise ValueError(f"pages {ids[is_idle & ~self._is_kept[ids]].tolist()} are free and cannot be shared")
            self.num_cached -= int(np.count_nonzero(is_idle))
        self._references[ids] += 1

    def release(self, ids: np.ndarray) -> None:
        """Remove a reference for each entry; pages may repeat. A page without references is free or cached."""
        pages, counts = np.unique(ids, return_counts=True)
        left = self._references[pages] - counts
        if (left < 0).any():
            raise ValueError(f"pages {pages[left < 0].tolist()} are released more often than they are referenced")
        self._references[pages] = left
        idle = pages[left == 0]
        is_kept = self._is_kept[idle]
        self.num_cached += int(np.count_nonzero(is_kept))
        self._free_pages(idle[~is_kept])

    def keep(self, ids: np.ndarray) -> None:
        """Mark these distinct referenced pages as kept."""
        if (self._references[ids] < 1).any() or self._is_kept[ids].any():
            raise ValueError(f"of pages {ids.tolist()} some are not referenced, or kept already")
        self._is_kept[ids] = True

    def drop(self, ids: np.ndarray) -> None:
        """Unmark these distinct pages, which are kept no longer; those without references are free."""
        if not self._is_kept[ids].all():
            raise ValueError(f"pages {ids[~self._is_kept[ids]].tolist()} are not kept")
        self._is_kept[ids] = False
        idle = ids[self._references[ids] == 0]
        self.num_cached -= len(idle)
        self._free_pages(idle)

    def num_freed_by(self, ids: np.ndarray) -> int:
        """How many pages `release(ids)` would leave without references."""
        pages, counts = np.unique(ids, return_counts=True)
        return int((self._references[pages] == counts).sum())

    def _free_pages(self, ids: np.ndarray) -> None:
        self._free[self.num_free : self.num_free + len(ids)] = ids
        self.num_free += len(ids)
