"""Compiles vLLM's RPA v3 (tpu-inference, Apache-2.0) at a named workload; bench_kernel runs it with compiler dumps on.

    python -m scripts.benchmarks.kernels.compile_rpa TOPOLOGY WORKLOAD RESULT.json CHECKOUT

Only kernels/ragged_paged_attention/v3/{kernel,util}.py are imported from the checkout.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from scripts.benchmarks.kernels.compile_op import POOL_BYTES, mesh_of, write_memory
from scripts.benchmarks.kernels.workload_names import read_workload

MODULE = "tpu_inference.kernels.ragged_paged_attention.v3.kernel"


def main(topology: str, workload: str, result: str, checkout: str) -> None:
    w = read_workload(workload)
    mesh = mesh_of(topology)
    sharding = NamedSharding(mesh, PartitionSpec())
    jax.devices = lambda *_: list(mesh.devices)  # RPA reads the target from these, not from the mesh
    rpa = import_rpa(Path(checkout))

    def struct(*shape, dtype=jnp.int32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    new = struct(w.num_tokens, w.num_kv_heads, w.head_dim, dtype=w.stored_dtype)  # RPA expects quantized tokens
    page = rpa.get_kv_cache_shape(1, w.page_size, w.num_kv_heads, w.head_dim, jnp.dtype(w.stored_dtype))
    num_pages = max(sum(w.num_pages), POOL_BYTES // (int(np.prod(page)) * jnp.dtype(w.stored_dtype).itemsize))
    with jax.set_mesh(mesh):
        compiled = rpa.ragged_paged_attention.lower(
            struct(w.num_tokens, w.num_heads, w.head_dim, dtype=w.dtype),
            *(new, new, struct(num_pages, *page[1:], dtype=w.stored_dtype), struct(w.num_rows)),
            *(struct(w.num_rows * max(w.num_pages)), struct(w.num_rows + 1), struct(3)),
            sm_scale=w.head_dim**-0.5,
            sliding_window=w.window,
            soft_cap=w.softcap,
            **({"k_scale": 1.0, "v_scale": 1.0} if w.is_8bit else {}),
        ).compile()
    write_memory(compiled, result)


def import_rpa(checkout: Path) -> ModuleType:
    """Imports the kernel's module without running the __init__ files of its packages."""
    parts = MODULE.split(".")[:-1]
    for end in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = [str(checkout.joinpath(*parts[:end]))]
        sys.modules[package.__name__] = package
    return importlib.import_module(MODULE)


if __name__ == "__main__":
    main(*sys.argv[1:])
