"""Host: `host_memory_bytes`: the physical memory of this machine."""

import os


def host_memory_bytes() -> int:
    """Bytes of physical memory, those in use included."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
