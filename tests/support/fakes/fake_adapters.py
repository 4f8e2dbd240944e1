"""Adapters without files: their content follows from their path."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.lora.packed_adapter import PackedAdapter


def fake_packed(path: str, num_groups: int = 1) -> PackedAdapter:
    """One to four pages, of which the two blocks of ranks name each at least once."""
    digest = np.frombuffer(blake2b(path.encode(), digest_size=16).digest(), np.uint8).astype(np.float32)
    num_pages = 1 + int(digest[0]) % 4
    content = np.add.outer(np.arange(num_pages, dtype=np.float32) * 1000, digest).reshape(1, num_pages, 1, 2, 8)
    where = 1 + np.arange(2 * num_groups * 3).reshape(2, num_groups, 3) % num_pages
    where[1, :, 2] = 0
    return PackedAdapter(content, where.astype(np.int32))


class FakeReader:
    """A `read` of `AdapterStore`. files: what each path holds instead of its own content. num_reads: by path.

    before: called with the path before each read; it may raise, or wait.
    """

    def __init__(self, before: Callable[[str], None] = lambda path: None):
        self.before, self.files = before, dict[str, str]()
        self.num_reads = dict[str, int]()

    def __call__(self, request: LoRARequest) -> tuple[int, PackedAdapter]:
        path = request.lora_path
        self.num_reads[path] = self.num_reads.get(path, 0) + 1
        self.before(path)
        return 8, fake_packed(self.files.get(path, path))
