"""Inside shard_map over KV heads each device attends with its own heads; together they give the whole result."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS
from tests.pallas_kernels.paged_attention.attention_checks import expected_of
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors

SHAPE: dict[str, Any] = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 64, "has_sinks": True}
DECODE = Workload("decode", (1, 1, 1), (40, 17, 30), **SHAPE)
MIXED = Workload("mixed", (1, 1, 12), (40, 17, 30), **SHAPE, tree_words=1, window=16, page_size=32, pool_dtype="int8")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workload", [DECODE, MIXED], ids=lambda workload: workload.name)
def test_heads_on_two_devices_equal_heads_on_one(workload, backend):
    arguments = build(workload)
    expected = expected_of(workload)
    spec = replace(arguments.pop("spec"), backend=backend)
    heads = P(None, "tensor")
    specs = dict.fromkeys(("q", "k", "v", "k_scale", "v_scale"), heads)
    specs |= {"pool": P(None, None, "tensor"), "sinks": P("tensor"), "layer": P(), "meta": P()}
    mesh = Mesh(np.array(jax.devices()[:2]), ("tensor",))

    @partial(jax.shard_map, mesh=mesh, in_specs=(specs,), out_specs=(heads, specs["pool"]), check_vma=False)
    def sharded(arguments):
        return paged_attention(**arguments, spec=spec)

    o, pool = jax.jit(sharded, compiler_options={"xla_backend_optimization_level": 0})(arguments)
    assert errors(np.asarray(o), expected.o).max() <= BOUNDS[workload.dtype]
    assert are_same_pools(np.asarray(pool), expected.pool)
