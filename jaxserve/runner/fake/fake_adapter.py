"""Host: what an adapter does to the fake model: its sequences begin with a number made of what lies in its pages."""

from hashlib import blake2b

import numpy as np

from jaxserve.lora.packed_adapter import PackedAdapter


def page_key(content: np.ndarray) -> int:
    """A number for what lies in one page."""
    return int.from_bytes(blake2b(np.ascontiguousarray(content).tobytes(), digest_size=8).digest())


def table_key(has_page: np.ndarray, keys: np.ndarray) -> int:
    """A number for an adapter. has_page: bool[B, G, n], where its table names a page. keys: uint64[n], of these."""
    digest = blake2b(has_page.tobytes(), digest_size=8)
    digest.update(keys.astype(np.uint64).tobytes())
    return int.from_bytes(digest.digest())


def adapter_key(packed: PackedAdapter) -> int:
    """The same from the adapter itself."""
    keys = np.array([page_key(packed.content[:, i]) for i in range(packed.num_pages)], np.uint64)
    has_page = packed.where > 0
    return table_key(has_page, keys[packed.where[has_page] - 1])
