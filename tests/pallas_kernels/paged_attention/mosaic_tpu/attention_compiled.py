"""Calls of paged attention at the shapes of real models, compiled ahead of time for a target device."""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.api import paged_attention
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.batch_meta import make_meta
from tests.support.compiled.aot import compile_on, on

NUM_ROWS, WIDTH, NUM_LAYERS = 64, 128, 4
LLAMA3_8B: dict[str, Any] = {"heads": (32, 8), "head_dim": 128}
GEMMA3_270M: dict[str, Any] = {"heads": (4, 1), "head_dim": 256, "window": 512, "softcap": 50.0}
GPT_OSS_20B: dict[str, Any] = {"heads": (64, 8), "head_dim": 64, "window": 128, "has_sinks": True}


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
        spec = AttentionSpec(head_dim**-0.5, window, softcap, write, page_layout, backend)
        o, written = paged_attention(q, k, v, pool, layer, meta, spec, sinks=sinks, k_scale=scales, v_scale=scales)
        return (o, written) if write else o

    operands = (array((num_tokens, num_heads, head_dim), dtype), kv, kv, scalar, batch)
    tree = array((num_tokens, tree_words), jnp.int32) if tree_words else None
    sinks = array((num_heads,), dtype) if has_sinks else None
    donate = (0,) if write else ()
    return compile_on(mesh, attend, pool, *operands, tree, sinks, scales, donate=donate), pool
