"""A GPU that JAX cannot use is distinguished from no GPU, and the missing part is named."""

import jax
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware import mesh, nvidia_driver


@pytest.fixture
def machine(tmp_path):
    """Adds files to an empty file system."""

    def add(path: str, text: str = "") -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return tmp_path, add


def gpu_on_the_bus(add, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    add("sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n")
    add("sys/bus/pci/devices/0000:00:01.0/class", "0x030000\n")
    add("sys/bus/pci/devices/0000:01:00.0/vendor", f"{vendor}\n")
    add("sys/bus/pci/devices/0000:01:00.0/class", f"{kind}\n")


def test_nothing_is_missing_on_a_machine_without_a_gpu(machine):
    root, add = machine
    assert nvidia_driver.unusable_gpu(root) is None
    gpu_on_the_bus(add, vendor="0x1002")
    assert nvidia_driver.unusable_gpu(root) is None
    gpu_on_the_bus(add, kind="0x040300")  # the GPU's sound device
    assert nvidia_driver.unusable_gpu(root) is None


def test_a_gpu_without_a_driver_is_named(machine):
    root, add = machine
    gpu_on_the_bus(add)
    assert "driver" in nvidia_driver.unusable_gpu(root)


def test_a_driver_without_the_plugin_asks_for_the_extra(machine, monkeypatch):
    root, add = machine
    add("dev/nvidia0")
    add("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65")
    monkeypatch.setattr(nvidia_driver, "find_spec", lambda name: None)
    assert "pip install 'jaxserve-engine[cuda]'" in nvidia_driver.unusable_gpu(root)
    monkeypatch.setattr(nvidia_driver, "find_spec", lambda name: object())
    assert "says why" in nvidia_driver.unusable_gpu(root)


def test_no_engine_runs_on_the_cpu_of_a_machine_with_a_gpu_unless_told_to(monkeypatch):
    monkeypatch.setattr(mesh, "unusable_gpu", lambda: "its driver sleeps")
    assert mesh.make_mesh(1).size == 1, "JAX_PLATFORMS says cpu here"
    platforms = jax.config.jax_platforms
    jax.config.update("jax_platforms", None)
    try:
        with pytest.raises(ConfigError, match=r"its driver sleeps. To run on the CPU, set JAX_PLATFORMS=cpu"):
            mesh.make_mesh(1)
    finally:
        jax.config.update("jax_platforms", platforms)
