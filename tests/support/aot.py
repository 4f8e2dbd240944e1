"""Programs compiled for TPUs and GPUs that are not here, and what the compilers say of their memory and registers.

Tests that use this have `aot` in their names. Where a compiler is missing they are skipped, but never in CI.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxserve.core.sharding import TENSOR
from pallas_kernels.gpu_targets import gpu_target

TPU_TOPOLOGIES = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")  # four devices each, but 7x: two a chip

# Instructions whose result may be a whole pool, because they move nothing: kernels alias their operand.
IN_PLACE = {"parameter", "get-tuple-element", "tuple", "bitcast", "custom-call", "while", "conditional", "call"}
SLICED_OPERANDS = '"custom_fusion_config":{"name":"dynamic_slice_fusion"'  # a custom call on a GPU, in place too
HLO_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
HLO_DTYPES |= {"int8": "s8", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2"}


def tpu_mesh(topology: str, num_devices: int = 1) -> Mesh:
    """A mesh of the first devices of a topology ("v5e:2x2", "v5p:2x2x1", "v6e:2x4", "tpu7x:2x2x1", …)."""
    return Mesh(np.array(_tpu_devices(topology)[:num_devices]), (TENSOR,))


def gpu_mesh(name: str = "h200", num_devices: int = 1) -> Mesh:
    """A mesh of GPUs of one model, by its name in `gpu_targets`."""
    return Mesh(np.array(_gpu_devices(name, num_devices)), (TENSOR,))


@cache
def _tpu_devices(topology: str) -> list[Any]:
    _require("libtpu")
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


@cache
def _gpu_devices(name: str, num_devices: int) -> list[Any]:
    _require("jax_cuda13_plugin")
    sizes = {"target_config": gpu_target(name), "topology": f"1x1x{num_devices}"}
    return topologies.get_topology_desc(platform="cuda", topology_name=name, **sizes).devices


def _require(compiler: str) -> None:
    if find_spec(compiler) is None:
        message = f"{compiler} is not installed: run scripts/test --aot, or pip install the extra 'aot'"
        # Half a gigabyte is not for every machine to fetch; CI installs it, where a silent skip would prove nothing.
        pytest.fail(message) if "CI" in os.environ else pytest.skip(message)


def on(mesh: Mesh, shape: tuple[int, ...], dtype: Any, *axes: str | None) -> jax.ShapeDtypeStruct:
    """An array to compile for, divided over these mesh axes (whole on every device without any)."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*axes)))


def compile_on(
    mesh: Mesh, function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = (), **options: Any
) -> jax.stages.Compiled:
    """`function` compiled for a mesh, which is also what tells kernels their target; `options` are those of `jit`."""
    with jax.set_mesh(mesh), _unkept():
        return jax.jit(function, donate_argnums=donate, **options).lower(*args).compile()


@contextmanager
def _unkept() -> Iterator[None]:
    """jax's persistent cache would keep what is compiled for absent devices, and fail to read it in the next run."""
    name = "jax_persistent_cache_min_compile_time_secs"
    usual = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, usual)


class Ptxas(NamedTuple):
    """What NVIDIA's assembler says of a kernel."""

    kernel: str
    registers: int
    """Of a thread."""
    spill_bytes: int
    """That a thread stores and loads for want of registers."""


@contextmanager
def ptxas_report() -> Iterator[list[Ptxas]]:
    """Mosaic kernels compiled within it, once it has ended; not those that XLA makes."""
    report: list[Ptxas] = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as environment:
        # All that can be dumped is. Where nvdisasm is missing, as in the extra 'aot', a line on stderr says so.
        environment.setenv("MOSAIC_GPU_DUMP_TO", folder)
        yield report
        for file in sorted(Path(folder).glob("*.ptxas")):
            text = file.read_text()
            names = re.findall(r"Compiling entry function '(\w+)_mosaic_gpu_kernel'", text)
            registers = re.findall(r"Used (\d+) registers", text)
            spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
            for name, used, spilled in zip(names, registers, spills, strict=True):
                report.append(Ptxas(name, int(used), sum(map(int, spilled))))


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, or descriptions of arrays, on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(int(np.prod(_local_shape(a))) * np.dtype(a.dtype).itemsize for a in leaves)


def assert_in_place(
    compiled: jax.stages.Compiled, pool: jax.ShapeDtypeStruct, *, max_temp_bytes: int, donated: Any = None
) -> None:
    """What is donated (the pool alone by default) is updated where it lies, and little memory is needed beside it."""
    memory = compiled.memory_analysis()
    # Small arrays are padded to whole tiles, the pool never is.
    assert memory.alias_size_in_bytes >= device_bytes(pool if donated is None else donated)
    assert donated is not None or memory.alias_size_in_bytes == device_bytes(pool)
    assert memory.temp_size_in_bytes <= max_temp_bytes, f"{memory.temp_size_in_bytes / 1e6:.1f} MB of temporaries"
    assert not pool_copies(compiled, pool)


def pool_copies(compiled: jax.stages.Compiled, pool: jax.ShapeDtypeStruct) -> list[str]:
    """Instructions that make another array of the pool's shape, or of one layer's, on a device."""
    whole = _local_shape(pool)
    dtype = HLO_DTYPES[np.dtype(pool.dtype).name]
    shapes = [f"{dtype}[{','.join(map(str, shape))}]" for shape in (whole, (1, *whole[1:]), whole[1:])]
    found = []
    for line in compiled.as_text().splitlines():
        made = re.match(r"\s*(?:ROOT )?%?\S+ = (.+?) ([a-z][a-z0-9-]*)\(", line)
        if not made or made[2] in IN_PLACE or SLICED_OPERANDS in line:
            continue
        if any(shape in made[1] for shape in shapes):
            found.append(line.strip()[:200])
    return found


def _local_shape(array: Any) -> tuple[int, ...]:
    return array.shape if array.sharding is None else array.sharding.shard_shape(array.shape)
