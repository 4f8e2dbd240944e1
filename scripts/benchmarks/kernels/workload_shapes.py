"""The arguments of a named workload as shapes, for compilation without a device or a filled pool."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.batch_meta import make_meta
from pallas_kernels.paged_attention.workload_arguments import spec_of
from pallas_kernels.paged_attention.workloads import Workload


def shapes(w: Workload, sharding: Any = None) -> dict[str, Any]:
    """The result of `workload_arguments.build`, with ShapeDtypeStructs in place of arrays."""

    def struct(*shape: int, dtype: Any = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    columns = {
        "cu_q_lens": struct(w.num_rows + 1),
        "kv_lens": struct(w.num_rows),
        "tables": struct(w.num_rows, max(w.num_pages) + w.padding_columns),
        "first_pages": struct(w.num_rows),
        "num_seqs": struct(),
        "num_decodes": struct(),
        "tree": struct(w.num_tokens, w.tree_words) if w.tree_words else None,
    }
    meta = jax.eval_shape(partial(make_meta, num_tokens=w.num_tokens, page_size=w.page_size), **columns)
    new = struct(w.num_tokens, w.num_kv_heads, w.head_dim, dtype=w.dtype) if w.write else None
    scales = struct(w.num_layers, w.num_kv_heads, dtype=jnp.float32) if w.is_8bit else None
    num_pool_pages = 1 + sum(w.num_pages) + w.padding_pages
    layout = LAYOUTS[w.layout]
    page = layout.page_shape(w.page_size, w.head_dim, w.stored_dtype)
    pool = (w.num_layers, num_pool_pages, w.num_kv_heads, *page)
    return {
        "q": struct(w.num_tokens, w.num_heads, w.head_dim, dtype=w.dtype),
        "k": new,
        "v": new,
        "sinks": struct(w.num_heads, dtype=w.dtype) if w.has_sinks else None,
        "k_scale": scales,
        "v_scale": scales,
        "pool": struct(*pool, dtype=w.stored_dtype),
        "layer": struct(),
        "meta": jax.tree.map(lambda x: struct(*x.shape, dtype=x.dtype), meta),
        "spec": spec_of(w),
    }
