"""Host: `MaskRows`: which of the device's mask rows holds which set of allowed tokens.

    slot 0 ──▶ row 2   {yes, no}          two slots with the same content
    slot 3 ──▶ row 2
               row 1   {0 … 9}            no slot: found again, or replaced when a row is needed

A row has a content, not a slot: what many requests share is sent once.
"""

from collections import Counter
from hashlib import blake2b

import numpy as np

from jaxserve.core.device_ops import MaskUpload


class MaskRows:
    """num_rows: as many as there are slots, each of which has at most one, and drafts of a step; numbered from 1.

    A row may be replaced as soon as it has no reference: the device carries out uploads and draws in the order of the
    plans, so a draw before the upload still reads the old content.
    """

    def __init__(self, num_rows: int):
        self.references: Counter[int] = Counter()  # of rows that have some
        self._free = list(range(num_rows, 0, -1))
        self._row_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._unused: dict[bytes, None] = {}  # contents without references, the least recently used first
        self._uploads: dict[int, np.ndarray] = {}  # since the last plan

    def acquire(self, words: np.ndarray) -> int:
        """The row that holds a mask from the next plan on, with one more reference. words: uint32[ceil(V / 32)]."""
        key = blake2b(words.tobytes(), digest_size=16).digest()
        row = self._row_of.get(key)
        if row is None:
            row = self._free.pop() if self._free else self._forget(next(iter(self._unused)))
            self._row_of[key], self._key_of[row], self._uploads[row] = row, key, words
        self._unused.pop(key, None)
        self.references[row] += 1
        return row

    def release(self, row: int) -> None:
        """Drop a reference. Row 0, which allows all, has none."""
        if row == 0:
            return
        self.references[row] -= 1
        if self.references[row] == 0:
            del self.references[row]
            self._unused[self._key_of[row]] = None

    def take_uploads(self) -> tuple[MaskUpload, ...]:
        """The rows that the device does not have yet."""
        uploads = tuple(MaskUpload(row, words) for row, words in self._uploads.items())
        self._uploads = {}
        return uploads

    def _forget(self, key: bytes) -> int:
        del self._unused[key]
        return self._row_of.pop(key)
