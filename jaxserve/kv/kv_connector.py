"""Host: `KVConnector`: where pages of prefixes are kept besides the pool, as the prefix cache sees it."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from jaxserve.core.device_ops import PageLoad, PageSave


class KVConnector(Protocol):
    """Pages by their keys: digests of the namespace and of all tokens up to a page's end (`radix_tree.page_keys`), so
    equal prefixes have equal keys, in another process too. The first connector is the `HostTier`.

    num_pages, num_used: pages that it has memory for, and those in use. num_saved, num_loaded: pages copied out of the
    pool and into it. Places are numbers from 1, by which the copies of `take_transfers` name its pages.
    """

    num_pages: int
    num_saved: int
    num_loaded: int

    @property
    def num_used(self) -> int: ...

    def save(self, keys: list[bytes], pages: np.ndarray) -> None:
        """Copy these pages of the pool, int32[G, n], 0 for none, before they are reused; it may decline some."""

    def find(self, keys: Iterable[bytes]) -> tuple[list[bytes], np.ndarray]:
        """The leading keys that it has, and the place of each group's page: int32[G, n], 0 for none."""
        ...

    def pin(self, keys: list[bytes]) -> None:
        """Keep these entries where they are until they are loaded."""

    def load(self, keys: list[bytes], places: np.ndarray, pages: np.ndarray) -> None:
        """Copy from these places to pages of the pool before the next step, and unpin the keys."""

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove these entries, except pinned ones."""

    def clear(self) -> None:
        """Remove all entries, except pinned ones."""

    def take_transfers(self) -> tuple[PageSave | PageLoad, ...]:
        """The copies to make before the next step, in this order."""
        ...
