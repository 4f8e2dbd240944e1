"""Device: `HostPages`, KV pages in host memory (the host tier), and their transfer from and to the device."""

from collections import deque

import jax
import numpy as np

from jaxserve.kv.pool_layout import KVLayout

TRANSFER_PAGES = 16  # copied in one call; longer lists take several calls
MAX_ARRIVING = 4  # saves in flight: bounds the device memory of their pages


class HostPages:
    """Memory for pages 1 .. num_pages in the pool's layout, with all KV heads; page 0 takes padding."""

    def __init__(self, layout: KVLayout, num_pages: int):
        num_layers, _, *page = layout.shape(1)
        self._pages = np.empty((num_pages + 1, num_layers, *page), layout.dtype)
        self._arriving: deque[tuple[np.ndarray, jax.Array]] = deque()

    def put(self, ids: np.ndarray, pages: jax.Array) -> None:
        """Store the first len(ids) pages of [Lg, C, K, page, W2] from the device; returns at once."""
        pages.copy_to_host_async()
        self._arriving.append((ids, pages))
        if len(self._arriving) > MAX_ARRIVING:
            self._settle()

    def get(self, ids: np.ndarray) -> np.ndarray:
        """A copy of pages [Lg, C, K, page, W2], after every earlier `put` has completed."""
        while self._arriving:
            self._settle()
        return np.moveaxis(self._pages[ids], 0, 1)

    def _settle(self) -> None:
        ids, pages = self._arriving.popleft()
        self._pages[ids] = np.moveaxis(np.asarray(pages), 1, 0)[: len(ids)]
