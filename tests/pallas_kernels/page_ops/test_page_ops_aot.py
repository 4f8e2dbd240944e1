"""libtpu compiles every page operation for every TPU; none copies the pool or needs memory beyond the moved pages."""

from functools import partial
from itertools import cycle
from math import prod

import jax
import jax.numpy as jnp
import pytest

from jaxserve.core.hardware.mesh import device_bytes
from pallas_kernels.page_ops import api
from pallas_kernels.page_ops.aligned_pieces import piece_len, plan_pieces
from tests.support.compiled.aot import TPU_TOPOLOGIES, assert_in_place, compile_on, on, pool_copies, tpu_mesh

MB = 1 << 20
# Layers, pages, kv heads, page size, lanes of pools of 1 GiB; head dims that fill their lanes and others.
POOLS = {
    "llama3_8b": ((32, 512, 8, 64, 256), 128, "bfloat16"),
    "llama3_8b_on_4": ((32, 2048, 2, 64, 256), 128, "bfloat16"),
    "falcon_7b": ((32, 8192, 1, 64, 128), 64, "bfloat16"),
    "phi2": ((32, 128, 32, 64, 256), 80, "bfloat16"),
    "gemma3_270m": ((3, 5504, 1, 64, 512), 256, "float32"),
    "llama3_8b_int8": ((32, 512, 8, 128, 256), 128, "int8"),
    "llama3_8b_fp8": ((32, 512, 8, 128, 256), 128, "float8_e4m3fn"),
    "qwen_on_4_fp8": ((24, 5472, 2, 64, 256), 96, "float8_e5m2"),
}


@pytest.fixture(params=TPU_TOPOLOGIES)
def mesh(request) -> jax.sharding.Mesh:
    return tpu_mesh(request.param)


def pool_on(mesh: jax.sharding.Mesh, name: str) -> jax.ShapeDtypeStruct:
    shape, _, dtype = POOLS[name]
    assert prod(shape) * jnp.dtype(dtype).itemsize >= 1000 * MB
    return on(mesh, shape, dtype)


def on_one(*names: str) -> pytest.MarkDecorator:
    """Each pool on one topology, in turn; `scripts/prove aot` compiles them all."""
    return pytest.mark.parametrize(("mesh", "name"), list(zip(cycle(TPU_TOPOLOGIES), names)), indirect=["mesh"])


MOVED = ("llama3_8b", "phi2", "llama3_8b_int8", "qwen_on_4_fp8")
COPIED = ("llama3_8b", "falcon_7b", "llama3_8b_fp8")


@pytest.mark.thinned(3)
@on_one(*POOLS)
def test_tokens_are_written_into_the_donated_pool(mesh, name):
    pool, head_dim, num_tokens = pool_on(mesh, name), POOLS[name][1], 512
    kv = on(mesh, (num_tokens, pool.shape[2], head_dim), jnp.bfloat16)
    scalar, slots = on(mesh, (), jnp.int32), on(mesh, (num_tokens,), jnp.int32)
    compiled = compile_on(mesh, api.write, pool, scalar, kv, kv, slots, scalar, scalar, donate=(0,))
    packed_bytes = num_tokens * pool.shape[2] * pool.shape[4] * pool.dtype.itemsize
    assert_in_place(compiled, pool, max_temp_bytes=3 * packed_bytes + MB)


def test_a_scan_over_layers_carries_the_pool(mesh):
    """As in a step: pieces are planned once, and every layer writes."""
    pool = pool_on(mesh, "llama3_8b_on_4")
    num_layers, num_tokens = pool.shape[0], 512
    kv = on(mesh, (num_layers, num_tokens, pool.shape[2], 128), jnp.bfloat16)
    scalar, slots = on(mesh, (), jnp.int32), on(mesh, (num_tokens,), jnp.int32)

    def write_all(pool, kv, slots, begin, end):
        pieces = plan_pieces(slots, begin, end, piece_len(pool.shape[3]))

        def write(carry, k):
            pool, layer = carry
            return (api.write(pool, layer, k, 2 * k, slots, begin, end, pieces=pieces), layer + 1), None

        return jax.lax.scan(write, (pool, jnp.int32(0)), kv)[0][0]

    compiled = compile_on(mesh, write_all, pool, kv, slots, scalar, scalar, donate=(0,))
    assert_in_place(compiled, pool, max_temp_bytes=4 * MB)


@on_one(*MOVED)
def test_rows_are_moved_in_the_donated_pool(mesh, name):
    pool, slots = pool_on(mesh, name), on(mesh, (512,), jnp.int32)
    assert_in_place(compile_on(mesh, api.move_rows, pool, slots, slots, donate=(0,)), pool, max_temp_bytes=MB)


@on_one(*COPIED)
def test_pages_come_and_go_without_a_copy_of_the_pool(mesh, name):
    pool, ids = pool_on(mesh, name), on(mesh, (16,), jnp.int32)
    pages = on(mesh, (pool.shape[0], 16, *pool.shape[2:]), pool.dtype)
    copied = compile_on(mesh, api.copy_pages, pool, ids, ids, donate=(0,))
    assert_in_place(copied, pool, max_temp_bytes=device_bytes(pages) + MB)
    assert_in_place(compile_on(mesh, api.scatter_pages, pool, ids, pages, donate=(0,)), pool, max_temp_bytes=MB)
    gathered = compile_on(mesh, api.gather_pages, pool, ids)
    assert not pool_copies(gathered, pool)
    assert gathered.memory_analysis().temp_size_in_bytes <= MB


@pytest.mark.parametrize("mesh", ["v5e:2x2", "tpu7x:2x2x1"], indirect=True)
def test_the_control_xla_copies_the_pool_where_the_kernels_do_not(mesh):
    pool, ids = pool_on(mesh, "llama3_8b"), on(mesh, (16,), jnp.int32)
    compiled = compile_on(mesh, partial(api.copy_pages, backend="xla"), pool, ids, ids, donate=(0,))
    assert compiled.memory_analysis().temp_size_in_bytes >= device_bytes(pool)
    assert pool_copies(compiled, pool)
