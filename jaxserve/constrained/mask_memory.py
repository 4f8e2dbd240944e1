"""Host: `MaskMemory`: rows of masks in memory that two processes share."""

import ctypes
import mmap
import os
import weakref


class MaskMemory:
    """num_words: 32-bit words of a row. Bit i % 32 of word i // 32 of a row stands for token i.

    The file is anonymous memory; the process that made it may add rows, and the other then maps them (`grow`).
    """

    def __init__(self, descriptor: int, num_words: int):
        self.descriptor, self.num_words, self.num_rows = descriptor, num_words, 0
        self.row_bytes = 4 * num_words
        self.grow(os.fstat(descriptor).st_size // self.row_bytes)

    @classmethod
    def create(cls, num_words: int, num_rows: int) -> "MaskMemory":
        descriptor = os.memfd_create("masks")
        os.ftruncate(descriptor, 4 * num_words * num_rows)
        memory = cls(descriptor, num_words)
        weakref.finalize(memory, os.close, descriptor)
        return memory

    def grow(self, num_rows: int) -> None:
        """Map at least this many rows, which the file has or gets. Views of the memory so far stay valid."""
        if num_rows <= self.num_rows:
            return
        if os.fstat(self.descriptor).st_size < num_rows * self.row_bytes:
            os.ftruncate(self.descriptor, num_rows * self.row_bytes)
        self.num_rows = num_rows
        self.memory = mmap.mmap(self.descriptor, num_rows * self.row_bytes)
        self.words = memoryview(self.memory).cast("I")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def has(self, row: int, token: int) -> bool:
        """Whether a row allows a token."""
        return bool(self.words[row * self.num_words + token // 32] >> token % 32 & 1)

    def put(self, row: int, token: int, is_allowed: bool) -> None:
        at, bit = row * self.num_words + token // 32, 1 << token % 32
        self.words[at] = self.words[at] | bit if is_allowed else self.words[at] & ~bit

    def is_empty(self, row: int) -> bool:
        """Whether a row allows nothing."""
        return not any(self.words[row * self.num_words : (row + 1) * self.num_words])

    def clear(self, row: int) -> None:
        """Allow nothing."""
        ctypes.memset(self.address + row * self.row_bytes, 0, self.row_bytes)
