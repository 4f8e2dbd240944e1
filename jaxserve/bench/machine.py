"""Wiring: what a figure was measured on: processor, devices, versions, and the memory that was used."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("jaxserve-engine", "jax", "jaxlib", "numpy")


def hardware() -> dict[str, Any]:
    """The host, and the devices that JAX sees."""
    import jax

    devices = jax.devices()
    return host() | {"num_devices": len(devices), "device": devices[0].device_kind, "platform": devices[0].platform}


def host() -> dict[str, Any]:
    """Processor, the cores that this process may use, and memory in GiB."""
    info = _read("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": name[1] if name else platform.processor() or platform.machine(),
        "num_cores": num_cores(),
        "memory_gib": round(memory_bytes / 2**30, 1),
    }


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Python's version and those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory() -> dict[str, int | None]:
    """Bytes, at their highest so far: resident in this process, and on one device where it tells (CPUs do not)."""
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return {"rss_bytes": peak_rss_bytes(), "device_bytes": stats.get("peak_bytes_in_use")}


def peak_rss_bytes() -> int:
    """VmHWM; where there is no /proc, as on macOS, what getrusage says (on Linux it tells of the parent too)."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", _read("/proc/self/status"), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
