"""Hardware and software of a measurement."""

import subprocess

from jaxserve.bench import machine
from scripts.benchmarks.report_page import commit, hardware_text, listing, now

PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda13-plugin",
    "jax-cuda12-plugin",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "torch",
    "triton",
)


def about(device_kind: str) -> dict[str, str]:
    """The first rows of the page."""
    host = machine.host()
    found = {
        "device": device_kind,
        "driver": driver(),
        "host": hardware_text(host),
        "versions": listing(machine.versions(PACKAGES)),
        "command": "`scripts/device_day`",
        "commit": commit(),
        "date": now(),
    }
    return {key: text for key, text in found.items() if text}


def no_gpu() -> str:
    """Why no GPU can be measured."""
    from jaxserve.core.hardware.nvidia_driver import unusable_gpu

    reason = unusable_gpu()
    if reason:
        return f"this machine has an NVIDIA GPU, but {reason}."
    return "JAX finds no GPU. The benchmark needs a GPU; --dry-run tests the script on the CPU."


def driver() -> str:
    """Driver, memory and highest clock of the multiprocessors, from nvidia-smi; empty without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().replace("\n", "; ") if done.returncode == 0 else ""
