"""The source of RPA v3: the user's checkout or one cloned on demand; it is not part of this repository."""

import os
import subprocess
from pathlib import Path

from pallas_kernels.paged_attention.workloads import Workload

NAME = "RPA v3"
URL = "https://github.com/vllm-project/tpu-inference"
COMMIT = "b8692ff01fa191343836996c27a39dc95f008b88"
"""Of 2026-08-22; docs/benchmarks/kernels.md was made with it."""
KERNEL = Path("tpu_inference/kernels/ragged_paged_attention/v3/kernel.py")


def fetch() -> Path:
    """A checkout of COMMIT in the user's cache folder, cloned if missing."""
    folder = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "jaxserve" / f"tpu-inference-{COMMIT[:12]}"
    )
    if not (folder / KERNEL).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for command in (["init", "-q"], ["fetch", "-q", "--depth=1", URL, COMMIT], ["checkout", "-q", COMMIT]):
            subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


def check(checkout: Path) -> None:
    """Raises ValueError if the checkout lacks the kernel."""
    if not (checkout / KERNEL).is_file():
        raise ValueError(f"{checkout} is no checkout of {URL}: {KERNEL} is missing")


def commit(checkout: Path) -> str:
    """The checkout's commit, or "unknown commit" outside a git checkout."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else "unknown commit"


def reason_against(w: Workload) -> str | None:
    """Why RPA v3 cannot compute this workload, or is not comparable; None if it is."""
    if w.head_dim % 128:
        return f"RPA v3 has a separate kernel for head dim {w.head_dim}, which is not counted"
    if w.tree_words:
        return "RPA v3 has no draft trees"
    if w.has_sinks:
        return "RPA v3 has no sinks"
    if w.stored_dtype == "int8":
        return "RPA v3 has no int8 pools"
    if not w.write:
        return "RPA v3 is compared with storing of new tokens only"
    return None
