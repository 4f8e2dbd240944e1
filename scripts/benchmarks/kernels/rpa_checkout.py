"""Source of RPA v3: a checkout made by the user or cloned on demand, never part of this repository."""

import os
import subprocess
from pathlib import Path

from pallas_kernels.paged_attention.workloads import Workload

NAME = "RPA v3"
URL = "https://github.com/vllm-project/tpu-inference"
COMMIT = "b8692ff01fa191343836996c27a39dc95f008b88"
"""Of 2026-08-22: the one that docs/benchmarks/kernels.md was made with."""
KERNEL = Path("tpu_inference/kernels/ragged_paged_attention/v3/kernel.py")


def fetch() -> Path:
    """A checkout of COMMIT in the user's cache folder; cloned if it is not there yet."""
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "jaxserve" / f"tpu-inference-{COMMIT[:12]}"
    )
    if not (folder / KERNEL).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for command in (["init", "-q"], ["fetch", "-q", "--depth=1", URL, COMMIT], ["checkout", "-q", COMMIT]):
            subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


def check(checkout: Path) -> None:
    """Raises ValueError unless the kernel is there."""
    if not (checkout / KERNEL).is_file():
        raise ValueError(f"{checkout} is no checkout of {URL}: {KERNEL} is missing")


def commit(checkout: Path) -> str:
    """Its commit, or "unknown commit" where it is no git checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else "unknown commit"


def reason_against(w: Workload) -> str | None:
    """Why it cannot compute this workload; None if it can."""
    if w.head_dim % 128:
        return f"head dim {w.head_dim} has a kernel of its own there, which is not counted"
    if w.tree_words:
        return "it has no draft trees"
    if w.has_sinks:
        return "it has no sinks"
    if w.stored_dtype == "int8":
        return "it has no int8 pools"
    if not w.write:
        return "it is compared where it writes"
    return None
