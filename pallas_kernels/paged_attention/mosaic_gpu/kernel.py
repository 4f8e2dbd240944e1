"""Device: attention of items (a tile of query lines, a run of blocks of context), one per thread block and KV head.

memory warpgroup      [new token → its page]   pages → ring of blocks in shared memory, K and V in one copy (TMA)
compute warpgroups    64 query lines each; all of a thread block read the same ring
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.mosaic_gpu.compute_warpgroup import attend_item
from pallas_kernels.paged_attention.mosaic_gpu.items import NUM_FIELDS, Items, Lines
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import LINES, KernelSizes
from pallas_kernels.paged_attention.mosaic_gpu.memory_warpgroup import Item, store_token, stream_blocks

REGISTERS = {1: None, 2: (40, 232)}
"""Registers of a thread of the memory and of the compute warpgroups, by the number of these: of 65,536, each thread
of three warpgroups would get 168. With two, a thread has up to 255 by default."""


def attend_items(
    q: Num[Array, "tiles K groups lines H"],
    new: Num[Array, "singles K W2"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    tables: Int[Array, "S W"],
    first_pages: Int[Array, "S"],
    kv_lens: Int[Array, "S"],
    write_slots: Int[Array, "singles"],
    items: Items,
    lines: Lines,
    *,
    sizes: KernelSizes,
    spec: AttentionSpec,
    k_scale: Float[Array, "K"] | None,
    out_width: int,
) -> tuple[Num[Array, "items K groups lines width"], Float[Array, "items K groups 64"], Num[Array, "Lg P K page W2"]]:
    """Outputs of each item, normalized, the logarithm (base 2) of each line's sum, and the pool.

    Outputs of items without blocks are undefined.

    new: packed keys and values of the rows' single tokens, stored by the item with a row's last block; None stores
    nothing. out_width: of outputs; undefined beyond H.
    """
    num_kv_heads, num_items = pool.shape[2], items.fields.shape[1]
    interpreter = gpu_interpretation()
    arrays: dict[str, Any] = {"q": q, "tables": tables, "first_pages": first_pages, "kv_lens": kv_lens}
    arrays |= {"fields": items.fields, "layer": layer.reshape(1)}
    by_line = {"last": lines.last, "first": lines.first, "words": lines.words}
    for name, x in by_line.items():
        if x is not None:
            arrays[name] = x.reshape(*x.shape[:-1], sizes.num_groups, LINES)
    if k_scale is not None:
        arrays["k_scale"] = k_scale
    if new is not None:
        arrays |= {"new": new, "write_slots": write_slots}
    results = {
        "o": jax.ShapeDtypeStruct((num_items, num_kv_heads, *q.shape[2:4], out_width), sizes.out_dtype),
        "log_sums": jax.ShapeDtypeStruct((num_items, num_kv_heads, sizes.num_groups, LINES), jnp.float32),
    }
    scratch = sizes.scratch(writes=new is not None, is_interpreted=interpreter is not None)
    names = (*arrays, "pool", *results, *scratch)

    def paged_attention_items(*refs: Ref) -> None:
        _thread_block(dict(zip(names, refs, strict=True)), sizes, spec)

    pool_ref = jax.new_ref(pool)
    o, log_sums = plgpu.kernel(
        paged_attention_items,
        out_type=tuple(results.values()),
        scratch_types=tuple(scratch.values()),
        grid=(num_kv_heads, num_items),
        grid_names=("head", "item"),
        num_threads=sizes.num_groups + 1,
        thread_name="group",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpreter,
    )(*arrays.values(), pool_ref)
    return o, log_sums, jax.freeze(pool_ref)


def _thread_block(refs: Refs, sizes: KernelSizes, spec: AttentionSpec) -> None:
    head, index, group = (lax.axis_index(name) for name in ("head", "item", "group"))
    fields = [refs["fields"][i, index] for i in range(NUM_FIELDS)]
    row = fields[1]
    item = Item(index, head, *fields, kv_len=refs["kv_lens"][row], first_page=refs["first_pages"][row])
    has_work = item.begin < item.end
    registers = REGISTERS[sizes.num_groups]

    @pl.when((group == sizes.num_groups) & has_work)
    def _() -> None:
        if registers:
            plgpu.set_max_registers(registers[0], action="decrease")
        if "new" in refs:
            pl.when(item.end * sizes.positions >= item.kv_len)(partial(store_token, refs, item, sizes))
        stream_blocks(refs, item, sizes)

    @pl.when((group < sizes.num_groups) & has_work)
    def _() -> None:
        if registers:
            plgpu.set_max_registers(registers[1], action="increase")
        attend_item(refs, item, group, sizes, spec)
