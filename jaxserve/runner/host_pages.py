"""Device: `HostPages`, the pages in host memory, and how they come there and back."""

from collections import deque

import jax
import numpy as np

from jaxserve.kv.pool_layout import KVLayout

TRANSFER_PAGES = 16  # copied in one call; more take several
MAX_ARRIVING = 4  # calls whose pages are on their way; memory on the device is taken by no more


class HostPages:
    """Memory for pages 1 .. num_pages as the pool has them, all heads together; page 0 takes padding."""

    def __init__(self, layout: KVLayout, num_pages: int):
        num_layers, _, *page = layout.shape(1)
        self._pages = np.empty((num_pages + 1, num_layers, *page), layout.dtype)
        self._arriving: deque[tuple[np.ndarray, jax.Array]] = deque()

    def put(self, ids: np.ndarray, pages: jax.Array) -> None:
        """Keep [Lg, C, K, page, W2] from the device, of which the first len(ids) count; returns at once."""
        pages.copy_to_host_async()
        self._arriving.append((ids, pages))
        if len(self._arriving) > MAX_ARRIVING:
            self._settle()

    def get(self, ids: np.ndarray) -> np.ndarray:
        """[Lg, C, K, page, W2]: a copy, after all that was put before."""
        while self._arriving:
            self._settle()
        return np.moveaxis(self._pages[ids], 0, 1)

    def _settle(self) -> None:
        ids, pages = self._arriving.popleft()
        self._pages[ids] = np.moveaxis(np.asarray(pages), 1, 0)[: len(ids)]
