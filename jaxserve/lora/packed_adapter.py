"""Host: `PackedAdapter`: an adapter as it lies in pages, before it is known which pages of the pool it gets."""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """content: numbers of N pages of all layers of a KV group, [Lg, N, K, a, b]. where: which of these pages each part
    of a block of ranks has in each KV group, counted from 1; 0 where the adapter has nothing (`AdapterLayout`).
    folder: with the files that it was read from."""

    content: np.ndarray
    where: np.ndarray  # int32[B, G, n]
    folder: str | None = None

    @property
    def num_pages(self) -> int:
        """N."""
        return self.content.shape[1]

    @property
    def digest(self) -> bytes:
        """Equal for equal adapters only."""
        digest = blake2b(str((self.content.shape, self.content.dtype, self.where.shape)).encode(), digest_size=16)
        for array in (self.content, self.where):
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return digest.digest()

    def table(self, pages: np.ndarray) -> np.ndarray:
        """int32[B, G, n]: `where` with the ids of pages: int32[N], those of the pool that hold the content."""
        if len(pages) != self.num_pages:
            raise ValueError(f"an adapter of {self.num_pages} pages gets {len(pages)}")
        return np.append(np.int32(0), pages).astype(np.int32)[self.where]
