"""Host: `unusable_gpu`: why JAX cannot use an NVIDIA GPU of this machine."""

from importlib.util import find_spec
from pathlib import Path

PCI_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""First digits of the PCI classes of VGA and 3D controllers."""
PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")


def unusable_gpu(root: Path = Path("/")) -> str | None:
    """What is missing, if JAX has found no GPU although the machine has one; None if it has none.

    root: the root of the file system.
    """
    if not _has_gpu(root):
        return None
    if not (root / "proc/driver/nvidia/version").exists():
        return "its driver is not installed or not loaded: install NVIDIA's driver (580 or later for CUDA 13)"
    if not any(find_spec(name) for name in PLUGINS):
        return "JAX was installed without CUDA: pip install 'jaxserve-engine[cuda]'"
    return "JAX's CUDA plugin could not use it: python -c \"import jax; jax.devices('cuda')\" says why"


def _has_gpu(root: Path) -> bool:
    if (root / "dev/nvidia0").exists():
        return True
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == PCI_VENDOR and kind.startswith(DISPLAY_CLASSES):
            return True
    return False
