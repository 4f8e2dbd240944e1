"""Every page operation compiles for Hopper without spilled registers, and none copies the pool on any GPU."""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxserve.core.hardware.mesh import device_bytes
from pallas_kernels.page_ops import api
from tests.support.compiled.aot import assert_in_place, compile_on, gpu_mesh, on, ptxas_report

MB = 1 << 20
NUM_TOKENS, NUM_PAGES = 512, 16
# Layers, pages, kv heads, page size, lanes of pools of 1 GiB; head dims that fill their lanes and others.
POOLS = {
    "llama3_8b": ((32, 512, 8, 64, 256), 128, "bfloat16"),
    "falcon_7b": ((32, 8192, 1, 64, 128), 64, "float16"),
    "phi2": ((32, 128, 32, 64, 256), 80, "bfloat16"),
    "gemma3_270m": ((3, 5504, 1, 64, 512), 256, "float32"),
    "llama3_8b_int8": ((32, 512, 8, 128, 256), 128, "int8"),
    "llama3_8b_fp8": ((32, 512, 8, 128, 256), 128, "float8_e4m3fn"),
    "qwen_on_4_fp8": ((24, 5472, 2, 64, 256), 96, "float8_e5m2"),
}
KERNELS = {
    "write": {"page_ops_put"},
    "move_rows": {"page_ops_take", "page_ops_put"},
    "copy_pages": {"page_ops_take", "page_ops_put"},
    "gather_pages": {"page_ops_take"},
    "scatter_pages": {"page_ops_put"},
}


def pool_on(mesh: jax.sharding.Mesh, name: str) -> jax.ShapeDtypeStruct:
    shape, _, dtype = POOLS[name]
    assert prod(shape) * jnp.dtype(dtype).itemsize >= 1000 * MB
    return on(mesh, shape, dtype)


def operands_of(op: str, mesh: jax.sharding.Mesh, pool: jax.ShapeDtypeStruct, head_dim: int) -> tuple[Any, ...]:
    scalar, slots = on(mesh, (), jnp.int32), on(mesh, (NUM_TOKENS,), jnp.int32)
    ids = on(mesh, (NUM_PAGES,), jnp.int32)
    kv = on(mesh, (NUM_TOKENS, pool.shape[2], head_dim), jnp.bfloat16)
    pages = on(mesh, (pool.shape[0], NUM_PAGES, *pool.shape[2:]), pool.dtype)
    return {
        "write": (scalar, kv, kv, slots, scalar, scalar),
        "move_rows": (slots, slots),
        "copy_pages": (ids, ids),
        "gather_pages": (ids,),
        "scatter_pages": (ids, pages),
    }[op]


def additional_bytes(op: str, pool: jax.ShapeDtypeStruct) -> int:
    """Bytes that an operation may need in addition to the pool: for rows that it packs or moves, and their places."""
    num_layers, _, num_kv_heads, page_size, lanes = pool.shape
    rows = {"write": NUM_TOKENS, "move_rows": num_layers * NUM_TOKENS, "copy_pages": num_layers * NUM_PAGES * page_size}
    return rows.get(op, 0) * num_kv_heads * (lanes * pool.dtype.itemsize + 8) + MB


def compiled_in_place(op: str, target: str, name: str) -> set[str]:
    """The Mosaic kernels of an operation that is compiled for a GPU."""
    mesh = gpu_mesh(target)
    pool = pool_on(mesh, name)
    donate = () if op == "gather_pages" else (0,)
    with ptxas_report() as report:
        compiled = compile_on(mesh, getattr(api, op), pool, *operands_of(op, mesh, pool, POOLS[name][1]), donate=donate)
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == (device_bytes(pool) if donate else 0)
    assert memory.temp_size_in_bytes <= additional_bytes(op, pool), f"{memory.temp_size_in_bytes / 1e6:.1f} MB"
    assert all(kernel.spill_bytes == 0 and kernel.registers <= 64 for kernel in report)
    return {kernel.kernel for kernel in report}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", POOLS)
def test_hopper_writes_tokens_into_the_donated_pool(name):
    assert compiled_in_place("write", "h200", name) == KERNELS["write"]


@pytest.mark.parametrize("name", ["llama3_8b", "llama3_8b_fp8"])
def test_hoppers_rows_and_pages_come_and_go_without_a_copy_of_the_pool(name):
    for op in ("move_rows", "copy_pages", "gather_pages", "scatter_pages"):
        assert compiled_in_place(op, "h200", name) == KERNELS[op], op


def test_a_scan_over_layers_carries_the_pool():
    """One of 8 bits; the engine's step (tests/jaxserve/runner/step/test_gpu_step_aot.py) has another."""
    mesh = gpu_mesh("h200")
    pool = pool_on(mesh, "llama3_8b_int8")
    kv = on(mesh, (pool.shape[0], NUM_TOKENS, pool.shape[2], 128), jnp.bfloat16)
    scalar, slots = on(mesh, (), jnp.int32), on(mesh, (NUM_TOKENS,), jnp.int32)

    def write_all(pool, kv, slots, begin, end):
        def write(carry, k):
            pool, layer = carry
            return (api.write(pool, layer, k, 2 * k, slots, begin, end), layer + 1), None

        return jax.lax.scan(write, (pool, jnp.int32(0)), kv)[0][0]

    compiled = compile_on(mesh, write_all, pool, kv, slots, scalar, scalar, donate=(0,))
    assert_in_place(compiled, pool, max_temp_bytes=4 * MB)


@pytest.mark.parametrize("target", ["a100", "b200"])
def test_other_generations_are_left_to_xla_which_copies_no_pool_either(target):
    for op in KERNELS:
        assert compiled_in_place(op, target, "llama3_8b") == set(), op


def test_a_kernel_of_another_generation_is_refused_with_the_reason():
    mesh = gpu_mesh("a100")
    pool = pool_on(mesh, "llama3_8b")
    reason = r"on gpu. mosaic_gpu: its kernels are for Hopper \(.*\), not for NVIDIA A100-SXM4-80GB"
    for op in KERNELS:
        with pytest.raises(NotImplementedError, match=reason):
            compile_on(mesh, partial(getattr(api, op), backend="mosaic_gpu"), pool, *operands_of(op, mesh, pool, 128))
