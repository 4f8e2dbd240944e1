"""Host: descriptions of GPUs, with which XLA compiles without the GPU: targets/<name>.txtpb next to the code.

A file is XLA's GpuTargetConfigProto as text: limits of thread blocks, shared memory and registers, and the rates of the
data sheet. The `name` in it is `jax.Device.device_kind` of the real GPU.
"""

from pathlib import Path

TARGETS = Path(__file__).parent / "targets"


def gpu_target_names() -> list[str]:
    return sorted(file.stem for file in TARGETS.glob("*.txtpb"))


def gpu_target(name: str) -> str:
    """The description of a GPU: the `target_config` of `jax.experimental.topologies.get_topology_desc`.

    Raises:
      ValueError: no description has this name; the message lists the known names.
    """
    names = gpu_target_names()
    if name not in names:
        raise ValueError(f"GPU target {name!r} is unknown; use one of {', '.join(names)}")
    return (TARGETS / f"{name}.txtpb").read_text()
