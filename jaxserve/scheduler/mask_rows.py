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
        self._array_of: dict[int, np.ndarray] = {}  # with which each row was last acquired
        self._row_of_array: dict[int, int] = {}  # by the id of that array
        self._unused: dict[bytes, None] = {}  # contents without references, the least recently used first
        self._uploads: dict[int, np.ndarray] = {}  # since the last plan

    def acquire(self, words: np.ndarray) -> int:
        """The row that holds a mask from the next plan on, with one more reference. words: uint32[ceil(V / 32)], which
        do not change: an array that comes again is found without being read, 33 KB for 262,144 tokens."""
        row = self._row_of_array.get(id(words))
        if row is None:
            key = blake2b(words.tobytes(), digest_size=16).digest()
            row = self._row_of.get(key)
            if row is None:
                row = self._free.pop() if self._free else self._forget(next(iter(self._unused)))
                self._row_of[key], self._key_of[row], self._uploads[row] = row, key, words
            self._forget_array(row)
            self._array_of[row], self._row_of_array[id(words)] = words, row
        self._unused.pop(self._key_of[row], None)
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

    def _forget_array(self, row: int) -> None:
        if (known := self._array_of.pop(row, None)) is not None:
            del self._row_of_array[id(known)]

    def _forget(self, key: bytes) -> int:
        del self._unused[key]
        return self._row_of.pop(key)
