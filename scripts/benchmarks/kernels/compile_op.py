"""Compiles paged attention at a named workload for a TPU target; bench_kernel runs it with compiler dumps on.

python -m scripts.benchmarks.kernels.compile_op TOPOLOGY WORKLOAD RESULT.json      (WORKLOAD: its name or JSON form)
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.workload_names import read_workload
from scripts.benchmarks.kernels.workload_shapes import shapes

POOL_BYTES = 2**30
"""Minimum size of the pool: XLA may keep a smaller one in VMEM, where no model's pool fits."""


def main(topology: str, workload: str, result: str) -> None:
    mesh = mesh_of(topology)
    args = shapes(with_large_pool(read_workload(workload)), NamedSharding(mesh, PartitionSpec()))
    spec = replace(args.pop("spec"), backend="mosaic_tpu")

    def call(pool, args):
        return paged_attention(pool=pool, **args, spec=spec)

    with jax.set_mesh(mesh):
        compiled = jax.jit(call, donate_argnums=0).lower(args.pop("pool"), args).compile()
    write_memory(compiled, result)


def mesh_of(topology: str) -> Mesh:
    """One device of a TPU that this machine lacks."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    return Mesh(np.array(devices[:1]), ("x",))


def write_memory(compiled: jax.stages.Compiled, result: str) -> None:
    """Writes the program's memory figures as JSON."""
    memory = compiled.memory_analysis()
    assert memory
    facts = {"temp_bytes": memory.temp_size_in_bytes, "alias_bytes": memory.alias_size_in_bytes}
    Path(result).write_text(json.dumps(facts))


def with_large_pool(w: Workload) -> Workload:
    pool = shapes(w)["pool"]
    page_bytes = pool.size * pool.dtype.itemsize // pool.shape[1]
    return replace(w, padding_pages=max(w.padding_pages, POOL_BYTES // page_bytes))


if __name__ == "__main__":
    main(*sys.argv[1:])
