"""Programs compiled ahead of time for TPUs and GPUs without any device, with their memory and registers.

Tests that use this have `aot` in their names. Where a compiler is missing they are skipped, but never in CI.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxserve.core.hardware.aot_targets import gpu_devices, no_persistent_cache, tpu_devices
from jaxserve.core.hardware.compilers import COMPILERS, has_compiler
from jaxserve.core.hardware.mesh import device_bytes, mesh_of
from jaxserve.runner.programs import pool_aliasing
from jaxserve.runner.programs.hlo import read_hlo

TPU_TOPOLOGIES = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")  # four devices each, but 7x: two a chip


def tpu_mesh(topology: str, num_devices: int = 1) -> Mesh:
    """A mesh of the first devices of a topology ("v5e:2x2", "v5p:2x2x1", "v6e:2x4", "tpu7x:2x2x1", …)."""
    _require("tpu")
    return mesh_of(tpu_devices(topology)[:num_devices])


def gpu_mesh(name: str = "h200", num_devices: int = 1) -> Mesh:
    """A mesh of GPUs of one model, by its name in `gpu_targets`."""
    _require("gpu")
    return mesh_of(gpu_devices(name, num_devices))


def _require(platform: str) -> None:
    if not has_compiler(platform):
        message = f"{COMPILERS[platform]} is not installed: run scripts/test --aot, or pip install the extra 'aot'"
        # Half a gigabyte is optional on most machines; CI installs it, where a silent skip would prove nothing.
        pytest.fail(message) if "CI" in os.environ else pytest.skip(message)


def on(mesh: Mesh, shape: tuple[int, ...], dtype: Any, *axes: str | None) -> jax.ShapeDtypeStruct:
    """An array to compile for, divided over these mesh axes (whole on every device without any)."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*axes)))


def compile_on(
    mesh: Mesh, function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = (), **options: Any
) -> jax.stages.Compiled:
    """`function` compiled for a mesh, from which kernels take their target; `options` are those of `jit`."""
    with jax.set_mesh(mesh), no_persistent_cache():
        return jax.jit(function, donate_argnums=donate, **options).lower(*args).compile()


class Ptxas(NamedTuple):
    """The report of NVIDIA's assembler on a kernel."""

    kernel: str
    registers: int
    """Per thread."""
    spill_bytes: int
    """Stored and loaded by a thread for lack of registers."""


@contextmanager
def ptxas_report() -> Iterator[list[Ptxas]]:
    """Reports on the Mosaic kernels compiled within the block, once it has ended; not on those that XLA makes."""
    report: list[Ptxas] = []
    with TemporaryFile() as printed, pytest.MonkeyPatch.context() as environment:
        # The compiler prints it, past Python's stdout. MOSAIC_GPU_DUMP_TO would write it to files, with everything
        # else that can be dumped: twice the CPU time.
        environment.setenv("MOSAIC_GPU_DUMP_PTXAS", "1")
        stdout = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            yield report
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
        printed.seek(0)
        text = printed.read().decode()
        names = re.findall(r"Compiling entry function '(\w+)_mosaic_gpu_kernel'", text)
        registers = re.findall(r"Used (\d+) registers", text)
        # Of a kernel's properties: a warning says the same of one that spills.
        spills = re.findall(r"stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text)
        for name, used, spilled in zip(names, registers, spills, strict=True):
            report.append(Ptxas(name, int(used), sum(map(int, spilled))))


def assert_in_place(
    compiled: jax.stages.Compiled, pool: jax.ShapeDtypeStruct, *, max_temp_bytes: int, donated: Any = None
) -> None:
    """Checks that donated arrays (the pool alone by default) are updated in place, with little additional memory."""
    memory = compiled.memory_analysis()
    # Small arrays are padded to whole tiles, the pool never is.
    assert memory.alias_size_in_bytes >= device_bytes(pool if donated is None else donated)
    assert donated is not None or memory.alias_size_in_bytes == device_bytes(pool)
    assert memory.temp_size_in_bytes <= max_temp_bytes, f"{memory.temp_size_in_bytes / 1e6:.1f} MB of temporaries"
    assert not pool_copies(compiled, pool)


def pool_copies(compiled: jax.stages.Compiled, pool: jax.ShapeDtypeStruct) -> list[str]:
    """Instructions that make another array of the pool's shape, or of one layer's, on a device."""
    program, temporary_bytes = read_hlo(compiled.as_text()), compiled.memory_analysis().temp_size_in_bytes
    return pool_aliasing.pool_copies(program, pool, temporary_bytes)
