"""In a scan over layers the donated pool is updated in place: the compiled executable holds no copy of it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from pallas_kernels.page_layouts import ROWS
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import SMOLLM2, Workload

NUM_LAYERS, NUM_PAGES, PAGE = 6, 4096, 16
POOL = jax.ShapeDtypeStruct((NUM_LAYERS, NUM_PAGES, 3, PAGE, ROWS.packed_len(64, None)), jnp.bfloat16)
BATCHES = {
    "decode": Workload("decode", (1,) * 8, (40,) * 8, **SMOLLM2, dtype="bfloat16"),
    "mixed": Workload("mixed", (1,) * 4 + (60,), (40,) * 4 + (60,), **SMOLLM2, dtype="bfloat16"),
}
Body = Callable[..., tuple[jax.Array, jax.Array]]


def in_every_layer(q, pool, layer, call: Body):
    return call(q, pool, window=None)


def in_branches(q, pool, layer, call: Body):
    local, full = (lambda q, pool, window=window: call(q, pool, window=window) for window in (32, None))
    return jax.lax.cond(layer % 6 == 5, full, local, q, pool)


def in_a_switch(q, pool, layer, call: Body):
    branches = [lambda q, pool, window=window: call(q, pool, window=window) for window in (32, 64, None)]
    return jax.lax.switch(layer % 3, branches, q, pool)


def compile_layers(workload: Workload, kind: Callable) -> jax.stages.Compiled:
    arguments = build(workload)
    q, k, v, meta = (arguments[name] for name in ("q", "k", "v", "meta"))

    def step(pool, q, k, v, meta):
        def layer_step(carry, layer):
            q, pool = carry

            def call(q, pool, window):
                return paged_attention(q, k, v, pool, layer, meta, AttentionSpec(0.125, window, backend="xla"))

            return kind(q, pool, layer, call), None

        return jax.lax.scan(layer_step, (q, pool), jnp.arange(NUM_LAYERS, dtype=jnp.int32))[0]

    return jax.jit(step, donate_argnums=0).lower(POOL, q, k, v, meta).compile()


@pytest.mark.parametrize("kind", [in_every_layer, in_branches, in_a_switch])
@pytest.mark.parametrize("batch", BATCHES)
def test_the_pool_is_never_copied(batch, kind):
    memory = compile_layers(BATCHES[batch], kind).memory_analysis()
    pool_bytes = POOL.size * POOL.dtype.itemsize
    assert memory.alias_size_in_bytes == pool_bytes
    assert memory.temp_size_in_bytes < 4 * 2**20 < pool_bytes // NUM_LAYERS


def test_the_control_a_pool_read_after_the_write_is_copied():
    def write_and_compare(pool):
        written = pool.at[0, 1].set(0)
        return written, (pool != written).any()

    memory = jax.jit(write_and_compare, donate_argnums=0).lower(POOL).compile().memory_analysis()
    assert memory.temp_size_in_bytes >= POOL.size * POOL.dtype.itemsize
