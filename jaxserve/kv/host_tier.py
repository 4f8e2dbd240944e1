"""Host: `HostTier`: pages of evicted prefixes in host memory, and the copies to make there and back.

    pool         [ a b c d ]    evicted: c d, their pages are reused    loaded: c d, into pages that are free now
    host memory  [ . . . . ] →  [ c d . . ]                          →  [ c d . . ]   the copies stay

An entry is found by its key, a digest of all tokens up to the end of its page, so the tier does not depend on the tree.
Copies are recorded in the order in which they must be made: a page in host memory may be read and then reused for
another entry before the next step.
"""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from jaxserve.core.device_ops import PageLoad, PageSave
from jaxserve.kv.kv_connector import KVConnector


class HostTier(KVConnector):
    """Memory for `num_pages` pages, numbered from 1; the least recently used are replaced first.

    num_saved, num_loaded: pages copied to host memory and back.
    """

    def __init__(self, num_pages: int, num_groups: int):
        self.num_pages = num_pages
        self._nothing = np.zeros((num_groups, 0), np.int32)
        self._free = list(range(num_pages, 0, -1))
        self._entries: OrderedDict[bytes, np.ndarray] = OrderedDict()  # key → int32[G] pages of host memory, 0 for none
        self._pinned: dict[bytes, np.ndarray] = {}  # entries that are about to be loaded
        self._transfers: list[tuple[type[PageSave] | type[PageLoad], list[int], list[int]]] = []
        self.num_saved = self.num_loaded = 0

    @property
    def num_used(self) -> int:
        """Pages of host memory in use."""
        return self.num_pages - len(self._free)

    def save(self, keys: list[bytes], pages: np.ndarray) -> None:
        """Copy these pages, int32[G, n], before they are reused; pages for which there is no memory are lost.

        The end of a prefix is replaced before its beginning, so it counts as used earlier.
        """
        for j in reversed(range(len(keys))):
            if keys[j] in self._pinned:
                continue
            entry = self._entries.setdefault(keys[j], np.zeros(len(pages), np.int32))
            self._entries.move_to_end(keys[j])
            for g in np.flatnonzero((pages[:, j] > 0) & (entry == 0)).tolist():
                entry[g] = self._allocate(keys[j])
                if entry[g]:
                    self._record(PageSave, int(pages[g, j]), int(entry[g]))
                    self.num_saved += 1
            if not entry.any():
                del self._entries[keys[j]]

    def find(self, keys: Iterable[bytes]) -> tuple[list[bytes], np.ndarray]:
        """The leading keys that have entries, and the page of each group: int32[G, n], 0 for none."""
        found: list[bytes] = []
        for key in keys:
            if key not in self._entries:
                break
            found.append(key)
        return found, np.stack([self._entries[key] for key in found], axis=1) if found else self._nothing

    def pin(self, keys: list[bytes]) -> None:
        """Exempt entries from replacement until they are loaded."""
        for key in keys:
            self._pinned[key] = self._entries.pop(key)

    def load(self, keys: list[bytes], places: np.ndarray, pages: np.ndarray) -> None:
        """Copy pages of host memory to pages of the pool, and unpin the keys, which count as used now."""
        for host_page, page in zip(places.tolist(), pages.tolist(), strict=True):
            self._record(PageLoad, host_page, page)
        self.num_loaded += len(pages)
        for key in reversed(keys):
            self._entries[key] = self._pinned.pop(key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove the entries of these keys, except pinned ones."""
        for key in keys:
            if (entry := self._entries.pop(key, None)) is not None:
                self._free += entry[entry > 0].tolist()

    def clear(self) -> None:
        """Remove all entries, except pinned ones."""
        self.forget(list(self._entries))

    def take_transfers(self) -> tuple[PageSave | PageLoad, ...]:
        """The copies to make before the next step, which are recorded no longer."""
        transfers = tuple(
            kind(np.array(sources, np.int32), np.array(destinations, np.int32))
            for kind, sources, destinations in self._transfers
        )
        self._transfers.clear()
        return transfers

    def _record(self, kind: type[PageSave] | type[PageLoad], source: int, destination: int) -> None:
        if not self._transfers or self._transfers[-1][0] is not kind:
            self._transfers.append((kind, [], []))
        self._transfers[-1][1].append(source)
        self._transfers[-1][2].append(destination)

    def _allocate(self, key: bytes) -> int:
        """A page of host memory for an entry, another entry's if necessary; 0 if there is none."""
        while not self._free:
            oldest = next(iter(self._entries))
            if oldest == key:
                return 0
            self.forget([oldest])
        return self._free.pop()
