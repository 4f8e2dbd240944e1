"""Compiles vLLM's RPA v3 (tpu-inference, Apache-2.0) at a named workload: run by bench_kernel under compiler dumps.

    python -m scripts.benchmarks.kernels.compile_rpa TOPOLOGY WORKLOAD RESULT.json CHECKOUT

Of the checkout only kernels/ragged_paged_attention/v3/{kernel,util}.py are imported.
"""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scripts.benchmarks.kernels.compile_op import POOL_BYTES
from scripts.benchmarks.kernels.workload_names import read_workload

MODULE = "tpu_inference.kernels.ragged_paged_attention.v3.kernel"


def main(topology: str, workload: str, result: str, checkout: str) -> None:
    w = read_workload(workload)
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices[:1]), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec())
    jax.devices = lambda *_: devices[:1]  # it asks them, not the mesh, what it is compiled for
    rival = import_rival(Path(checkout))

    def struct(*shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    new = struct(w.num_tokens, w.num_kv_heads, w.head_dim, dtype=w.stored_dtype)  # it takes them quantized
    page = rival.get_kv_cache_shape(1, w.page_size, w.num_kv_heads, w.head_dim, jnp.dtype(w.stored_dtype))
    num_pages = max(sum(w.num_pages), POOL_BYTES // (int(np.prod(page)) * jnp.dtype(w.stored_dtype).itemsize))
    with jax.set_mesh(mesh):
        compiled = rival.ragged_paged_attention.lower(
            struct(w.num_tokens, w.num_heads, w.head_dim, dtype=w.dtype),
            *(new, new, struct(num_pages, *page[1:], dtype=w.stored_dtype), struct(w.num_rows)),
            *(struct(w.num_rows * max(w.num_pages)), struct(w.num_rows + 1), struct(3)),
            sm_scale=w.head_dim**-0.5,
            sliding_window=w.window,
            soft_cap=w.softcap,
            **({"k_scale": 1.0, "v_scale": 1.0} if w.is_8bit else {}),
        ).compile()
    memory = compiled.memory_analysis()
    facts = {"temp_bytes": memory.temp_size_in_bytes, "alias_bytes": memory.alias_size_in_bytes}
    Path(result).write_text(json.dumps(facts))


def import_rival(checkout: Path) -> ModuleType:
    """The kernel's module, without running the __init__ files of the packages that it lies in."""
    parts = MODULE.split(".")[:-1]
    for end in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = [str(checkout.joinpath(*parts[:end]))]
        sys.modules[package.__name__] = package
    return importlib.import_module(MODULE)


if __name__ == "__main__":
    main(*sys.argv[1:])
