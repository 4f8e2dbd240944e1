"""Inside shard_map over kv heads each device attends with its own heads, and the result is the whole."""

from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.arg_specs import Workload, build
from tests.pallas_kernels.paged_attention.attention_calls import STATIC, attend

SHAPE = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 64, "has_sinks": True}
DECODE = Workload("decode", (1, 1, 1), (40, 17, 30), **SHAPE)
MIXED = Workload("mixed", (1, 1, 12), (40, 17, 30), **SHAPE, is_tree=True, window=16)


@pytest.mark.parametrize("workload", [DECODE, MIXED], ids=lambda workload: workload.name)
def test_heads_on_two_devices_equal_heads_on_one(workload):
    arguments = build(workload)
    whole = attend(arguments, backend="xla", compile_fast=True)
    static = {name: arguments.pop(name) for name in STATIC if name in arguments}
    heads = P(None, "tensor")
    specs = dict.fromkeys(("q", "k", "v"), heads) | {"pool": P(None, None, "tensor"), "sinks": P("tensor")}
    specs |= {"layer": P(), "meta": P()}
    mesh = Mesh(np.array(jax.devices()[:2]), ("tensor",))

    @partial(jax.shard_map, mesh=mesh, in_specs=(specs,), out_specs=(heads, specs["pool"]))
    def sharded(arguments):
        return paged_attention(**arguments, **static)

    o, pool = jax.jit(sharded)(arguments)
    np.testing.assert_allclose(np.asarray(o), whole.o, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(np.asarray(pool)[:, 1:], whole.pool[:, 1:])
