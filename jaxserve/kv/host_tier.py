"""Host: `HostTier`, which pages of evicted prefixes lie in host memory, and what is to be copied there and back.

    pool         [ a b c d ]    evicted: c d, their pages given to others     loaded: c d, into pages that are free now
    host memory  [ . . . . ] →  [ c d . . ]                                →  [ c d . . ]   the copies stay

A place of a prefix is known by its key, a digest of all tokens up to its end, so the tier knows nothing of the tree.
The records of copies are kept in the order in which they must be made: a page in host memory may be read and then given
to another one before the next step.
"""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from jaxserve.core.step_plan import PageLoad, PageSave


class HostTier:
    """Room for `num_pages` pages, numbered from 1; the least recently used go when others come.

    num_saved, num_loaded: pages copied there and back.
    """

    def __init__(self, num_pages: int, num_groups: int):
        self.num_pages = num_pages
        self._nothing = np.zeros((num_groups, 0), np.int32)
        self._free = list(range(num_pages, 0, -1))
        self._places: OrderedDict[bytes, np.ndarray] = OrderedDict()  # key → page of each group, 0 for none
        self._held: dict[bytes, np.ndarray] = {}  # those that are about to be loaded
        self._transfers: list[tuple[type[PageSave] | type[PageLoad], list[int], list[int]]] = []
        self.num_saved = self.num_loaded = 0

    @property
    def num_used(self) -> int:
        return self.num_pages - len(self._free)

    @property
    def used_pages(self) -> np.ndarray:
        """The pages of host memory that hold something, once for each place that names them."""
        places = [*self._places.values(), *self._held.values()]
        return np.concatenate([self._nothing[0], *(place[place > 0] for place in places)])

    def save(self, keys: list[bytes], pages: np.ndarray) -> None:
        """Copy these pages, int32[G, n], before they are given to others; what finds no room is lost.

        Of a prefix the end goes first when room is wanted, so it counts as used longest ago.
        """
        for j in reversed(range(len(keys))):
            if keys[j] in self._held:
                continue
            place = self._places.setdefault(keys[j], np.zeros(len(pages), np.int32))
            self._places.move_to_end(keys[j])
            for g in np.flatnonzero((pages[:, j] > 0) & (place == 0)).tolist():
                place[g] = self._room_beside(keys[j])
                if place[g]:
                    self._record(PageSave, int(pages[g, j]), int(place[g]))
                    self.num_saved += 1
            if not place.any():
                del self._places[keys[j]]

    def find(self, keys: Iterable[bytes]) -> tuple[list[bytes], np.ndarray]:
        """The first of these keys, as far as they are here, and the page of each group: int32[G, n], 0 for none."""
        found = []
        for key in keys:
            if key not in self._places:
                break
            found.append(key)
        return found, np.stack([self._places[key] for key in found], axis=1) if found else self._nothing

    def hold(self, keys: list[bytes]) -> None:
        """Let nothing take their room until they are loaded."""
        for key in keys:
            self._held[key] = self._places.pop(key)

    def load(self, keys: list[bytes], host_pages: np.ndarray, pages: np.ndarray) -> None:
        """Copy pages of host memory into pages of the pool; the held keys are used now."""
        for host_page, page in zip(host_pages.tolist(), pages.tolist(), strict=True):
            self._record(PageLoad, host_page, page)
        self.num_loaded += len(pages)
        for key in reversed(keys):
            self._places[key] = self._held.pop(key)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Keep these no longer."""
        for key in keys:
            if (place := self._places.pop(key, None)) is not None:
                self._free += place[place > 0].tolist()

    def clear(self) -> None:
        """Keep nothing any more."""
        self.forget(list(self._places))

    def take_transfers(self) -> tuple[PageSave | PageLoad, ...]:
        """The copies to make before the next step."""
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

    def _room_beside(self, key: bytes) -> int:
        """A page of host memory, another place's if need be; 0 where there is none."""
        while not self._free:
            oldest = next(iter(self._places))
            if oldest == key:
                return 0
            self.forget([oldest])
        return self._free.pop()
