"""libtpu compiles the attention kernels for every TPU: the pool stays where it lies, and little is needed beside it."""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh

from pallas_kernels.layouts import LAYOUTS
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.meta import make_meta
from tests.support.aot import TPU_TOPOLOGIES, assert_in_place, compile_on, on, tpu_mesh

MB = 1 << 20
NUM_ROWS, WIDTH, NUM_LAYERS = 64, 128, 4
LLAMA3_8B: dict[str, Any] = {"heads": (32, 8), "head_dim": 128}
GEMMA3_270M: dict[str, Any] = {"heads": (4, 1), "head_dim": 256, "window": 512, "softcap": 50.0}
GPT_OSS_20B: dict[str, Any] = {"heads": (64, 8), "head_dim": 64, "window": 128, "has_sinks": True}
EVERYWHERE: dict[str, dict[str, Any]] = {
    "llama3_8b_decode": LLAMA3_8B | {"num_tokens": 64},
    "gemma3_270m_mixed": GEMMA3_270M | {"num_tokens": 256},
    "gpt_oss_20b_trees_int8": GPT_OSS_20B | {"num_tokens": 512, "tree_words": 1, "pool_dtype": "int8"},
}
LANES: dict[str, Any] = {"layout": "lanes", "page_size": 128}
LANES_SOMEWHERE: dict[str, dict[str, Any]] = {
    "phi2_in_lanes": LANES | {"heads": (32, 32), "head_dim": 80, "num_tokens": 128},
    "gpt_oss_20b_trees_int8_in_lanes": LANES | EVERYWHERE["gpt_oss_20b_trees_int8"],
}
ON_ONE: dict[str, dict[str, Any]] = {
    "llama3_8b_mixed_page_16": LLAMA3_8B | {"num_tokens": 512, "page_size": 16},
    "llama3_8b_fp8_page_128": LLAMA3_8B | {"num_tokens": 64, "page_size": 128, "pool_dtype": "float8_e4m3fn"},
    "phi2_float32": {"heads": (32, 32), "head_dim": 80, "num_tokens": 128, "dtype": "float32"},
    "phi3_mini_shared_kv": {"heads": (32, 32), "head_dim": 96, "num_tokens": 128, "write": False},
    "falcon_7b_fp8": {"heads": (71, 1), "head_dim": 64, "num_tokens": 64, "pool_dtype": "float8_e5m2"},
}
CASES = [
    *((topology, name) for topology in TPU_TOPOLOGIES for name in EVERYWHERE),
    *(("v6e:2x2", name) for name in ON_ONE),
    *zip(("v5e:2x2", "tpu7x:2x2x1"), LANES_SOMEWHERE, strict=True),
]


def compile_case(
    mesh: Mesh,
    *,
    heads: tuple[int, int],
    head_dim: int,
    num_tokens: int,
    page_size: int = 64,
    window: int | None = None,
    softcap: float | None = None,
    has_sinks: bool = False,
    tree_words: int = 0,
    write: bool = True,
    dtype: str = "bfloat16",
    pool_dtype: str | None = None,
    layout: str = "rows",
    backend: str = "auto",
) -> tuple[jax.stages.Compiled, jax.ShapeDtypeStruct]:
    """One call of attention compiled for a device, and its pool, of 1 GiB so that it must lie in main memory."""
    num_heads, num_kv_heads = heads
    array = partial(on, mesh)
    page_layout = LAYOUTS[layout]
    page = (num_kv_heads, *page_layout.page_shape(page_size, head_dim, pool_dtype or dtype))
    page_bytes = NUM_LAYERS * prod(page) * jnp.dtype(pool_dtype or dtype).itemsize
    pool = array((NUM_LAYERS, 2**30 // page_bytes, *page), pool_dtype or dtype)
    by_row, scalar = array((NUM_ROWS,), jnp.int32), array((), jnp.int32)
    batch = (array((NUM_ROWS + 1,), jnp.int32), by_row, array((NUM_ROWS, WIDTH), jnp.int32), by_row, scalar, scalar)
    kv = array((num_tokens, num_kv_heads, head_dim), dtype) if write else None
    scales = array((NUM_LAYERS, num_kv_heads), jnp.float32) if pool.dtype.itemsize == 1 else None

    def attend(pool, q, k, v, layer, batch, tree, sinks, scales):
        meta = make_meta(*batch, num_tokens=num_tokens, page_size=page_size, tree=tree)
        options = {"scale": head_dim**-0.5, "window": window, "softcap": softcap, "sinks": sinks, "write": write}
        options |= {"k_scale": scales, "v_scale": scales, "layout": page_layout, "backend": backend}
        o, written = paged_attention(q, k, v, pool, layer, meta, **options)
        return (o, written) if write else o

    operands = (array((num_tokens, num_heads, head_dim), dtype), kv, kv, scalar, batch)
    tree = array((num_tokens, tree_words), jnp.int32) if tree_words else None
    sinks = array((num_heads,), dtype) if has_sinks else None
    donate = (0,) if write else ()
    return compile_on(mesh, attend, pool, *operands, tree, sinks, scales, donate=donate), pool


@pytest.mark.parametrize(("topology", "name"), CASES)
def test_kernels_compile_and_leave_the_pool_in_place(topology, name):
    case = (EVERYWHERE | ON_ONE | LANES_SOMEWHERE)[name]
    compiled, pool = compile_case(tpu_mesh(topology), **case)
    assert "paged_attention_decode" in compiled.as_text()
    assert ("paged_attention_chunks" in compiled.as_text()) == (case["num_tokens"] > NUM_ROWS)
    # Queries, outputs, new rows and what of a tree depends on the line: by size, not by the pool.
    assert_in_place(compiled, pool, max_temp_bytes=24 * MB, donated=None if case.get("write", True) else ())


def test_the_control_xla_copies_the_pool_on_a_tpu():
    compiled, pool = compile_case(tpu_mesh("v6e:2x2"), **EVERYWHERE["llama3_8b_decode"], backend="xla")
    with pytest.raises(AssertionError, match="MB of temporaries"):
        assert_in_place(compiled, pool, max_temp_bytes=512 * MB)
