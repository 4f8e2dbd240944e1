"""Hardware and software of a measurement."""

import shlex
import subprocess

from jaxserve.bench import machine
from scripts.benchmarks.report_page import commit, hardware_text, listing, now, without_folder

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


def about(argv: list[str], device_kind: str) -> dict[str, str]:
    """The first rows of the page."""
    host = machine.host()
    found = {
        "device": device_kind,
        "driver": driver(),
        "host": hardware_text(host),
        "versions": listing(machine.versions(PACKAGES)),
        "command": f"`{shlex.join(['scripts/bench_gpu', *map(without_folder, argv)])}`",
        "commit": commit(),
        "date": now(),
    }
    return {key: text for key, text in found.items() if text}


def driver() -> str:
    """Driver, memory and highest clock of the multiprocessors, from nvidia-smi; empty without it."""
    command = ["nvidia-smi", "--query-gpu=driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().replace("\n", "; ") if done.returncode == 0 else ""
