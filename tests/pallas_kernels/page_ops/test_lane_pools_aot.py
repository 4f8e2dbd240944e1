"""libtpu compiles writes and moves in pools in LANES; none copies the pool or needs memory beyond the moved tokens."""

from functools import partial
from math import prod

import jax.numpy as jnp
import pytest

from pallas_kernels.page_layouts import LANES
from pallas_kernels.page_ops import api
from tests.support.compiled.aot import assert_in_place, compile_on, on, tpu_mesh

MB = 1 << 20
# Layers, pages and kv heads of pools of 1 GiB with pages of 128; head dim, dtype; where.
POOLS = {
    "phi2": ((32, 102, 32), 80, "bfloat16", "v6e:2x2"),
    "gemma3_270m": ((4, 1024, 1), 256, "float32", "v5p:2x2x1"),
    "gpt_oss_20b_int8": ((24, 342, 8), 64, "int8", "v5e:2x2"),
    "qwen_on_4_fp8": ((24, 1710, 2), 96, "float8_e4m3fn", "tpu7x:2x2x1"),
}


@pytest.mark.parametrize("name", POOLS)
def test_tokens_are_written_and_moved_in_the_donated_pool(name):
    shape, head_dim, dtype, topology = POOLS[name]
    mesh, num_tokens = tpu_mesh(topology), 512
    pool = on(mesh, (*shape, *LANES.page_shape(128, head_dim, dtype)), dtype)
    assert prod(pool.shape) * pool.dtype.itemsize >= 1000 * MB
    kv = on(mesh, (num_tokens, shape[2], head_dim), jnp.bfloat16)
    scalar, slots = on(mesh, (), jnp.int32), on(mesh, (num_tokens,), jnp.int32)
    operands = (pool, scalar, kv, kv, slots, scalar, scalar)
    compiled = compile_on(mesh, partial(api.write, layout=LANES), *operands, donate=(0,))
    assert "page_ops_lane_write" in compiled.as_text()
    packed_bytes = (num_tokens + 128) * shape[2] * pool.shape[3] * pool.dtype.itemsize
    assert_in_place(compiled, pool, max_temp_bytes=3 * packed_bytes + MB)
    moved = compile_on(mesh, partial(api.move_rows, layout=LANES), pool, slots, slots, donate=(0,))
    assert "page_ops_move_lanes" in moved.as_text()
    assert_in_place(moved, pool, max_temp_bytes=MB)
