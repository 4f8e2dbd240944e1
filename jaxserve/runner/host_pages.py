"""Device: `HostPages`, KV pages in host memory (the host tier), and their transfer from and to the device."""

from collections import deque
from typing import Any

import jax
import numpy as np

from jaxserve.kv.kv_state import KVState
from jaxserve.kv.pool_layout import KVLayout

TRANSFER_PAGES = 16  # copied in one call; longer lists take several calls
MAX_ARRIVING = 4  # saves in flight: bounds the device memory of their pages


class HostPages:
    """Memory for pages 1 .. num_pages of each array, with all KV heads, page by page; page 0 takes padding."""

    def __init__(self, layout: KVLayout, num_pages: int):
        def empty(page: Any) -> np.ndarray:
            num_layers, _, *rest = page.shape
            return np.empty((num_pages + 1, num_layers, *rest), page.dtype)

        self._pages: KVState = jax.tree.map(empty, layout.arrays(1))
        self._arriving: deque[tuple[np.ndarray, KVState]] = deque()

    def put(self, ids: np.ndarray, pages: KVState) -> None:
        """Store the first len(ids) pages of arrays from the device; returns at once."""
        jax.copy_to_host_async(pages)
        self._arriving.append((ids, pages))
        if len(self._arriving) > MAX_ARRIVING:
            self._settle()

    def get(self, ids: np.ndarray) -> KVState:
        """Copies of pages, in arrays like those on the device, after every earlier `put` has completed."""
        while self._arriving:
            self._settle()

        def copied(stored: np.ndarray) -> np.ndarray:
            return np.moveaxis(stored[ids], 0, 1)

        return jax.tree.map(copied, self._pages)

    def _settle(self) -> None:
        ids, pages = self._arriving.popleft()

        def store(stored: np.ndarray, arrived: jax.Array) -> None:
            stored[ids] = np.moveaxis(np.asarray(arrived), 1, 0)[: len(ids)]

        jax.tree.map(store, self._pages, pages)
