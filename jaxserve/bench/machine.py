"""Wiring: the machine of a measurement: processor, devices, package versions and peak memory."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from jaxserve.core.hardware.host_memory import host_memory_bytes

PACKAGES = ("jaxserve-engine", "jax", "jaxlib", "numpy")


def hardware() -> dict[str, Any]:
    """The host and the devices of JAX."""
    import jax

    devices = cast(list[Any], jax.devices())
    return host() | {"num_devices": len(devices), "device": devices[0].device_kind, "platform": devices[0].platform}


def host() -> dict[str, Any]:
    """Processor, the cores that this process may use, and memory in GiB."""
    info = _read("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return {
        "cpu": name[1] if name else platform.processor() or platform.machine(),
        "num_cores": num_cores(),
        "memory_gib": round(host_memory_bytes() / 2**30, 1),
    }


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of the installed packages among `packages`."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory() -> dict[str, int | None]:
    """Peak bytes so far: resident in this process, and on one device; None where the device has no statistics (CPU)."""
    import jax

    device = cast(Any, jax.local_devices()[0])
    stats: dict[str, int] = device.memory_stats() or {}
    return {"rss_bytes": peak_rss_bytes(), "device_bytes": stats.get("peak_bytes_in_use")}


def peak_rss_bytes() -> int:
    """VmHWM; without /proc, as on macOS, the figure of getrusage (which on Linux includes the parent process)."""
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
