"""The pages that the prefix cache and the host tier keep, read from their trees and entries one by one."""

import numpy as np

from jaxserve.kv.host_tier import HostTier
from jaxserve.kv.prefix_cache import PrefixCache


def kept_pages(cache: PrefixCache) -> np.ndarray:
    """Every page that a cache keeps, referenced or not, once for each place in its tree."""
    return np.concatenate([np.zeros(0, np.int32), *(node.pages[node.pages != 0] for node in cache._tree)])


def used_host_pages(host: HostTier) -> list[int]:
    """Pages of host memory in use, once for each entry that names them."""
    entries = [*host._entries.values(), *host._pinned.values()]
    return [page for entry in entries for page in entry.tolist() if page > 0]
