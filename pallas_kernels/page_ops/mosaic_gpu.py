"""Device: the page operations on Hopper GPUs: stretches of the pool pass through shared memory, one bulk copy each.

    pool [Lg, P, K, page, W2]  =  stretches [number, length]     a row of a token in one head, or a part of a page
    take: listed stretches → array        put: array → listed stretches

Operations differ only in their lists. Thread blocks run in any order, so a move within the pool takes all stretches
before it puts any.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Int, Num

from pallas_kernels.dispatch import gpu_interpretation, require_hopper
from pallas_kernels.kernel_types import Ref
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.page_ops.token_write import TokenWrite

MAX_BLOCK_BYTES = 32 * 2**10
"""Of a thread block's buffer. A multiprocessor runs six thread blocks: some fill their buffers, others empty theirs."""
MAX_BLOCK_COPIES = 16
"""Largest number of stretches per thread block; their loop is unrolled."""
COPY_BYTES = 16
"""A bulk copy moves a multiple of this many bytes."""
SKIPPED = -1
"""Stands in a list for a stretch that is not written."""


def write(pool: Num[Array, "Lg P K page W2"], tokens: TokenWrite) -> Num[Array, "Lg P K page W2"]:
    """See `api.write`."""
    _check(pool, tokens.slots, tokens.layout)
    rows, is_written = tokens.packed(pool), tokens.is_written()
    listed = jnp.where(is_written[None, :, None], _rows_at(pool, tokens.layer.reshape(1), tokens.slots), SKIPPED)
    return _put(pool, listed, rows)


def copy_pages(
    pool: Num[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Num[Array, "Lg P K page W2"]:
    return scatter_pages(pool, dst, gather_pages(pool, src))


def move_rows(
    pool: Num[Array, "Lg P K page W2"], src_slots: Int[Array, "R"], dst_slots: Int[Array, "R"], *, layout: PageLayout
) -> Num[Array, "Lg P K page W2"]:
    _check(pool, src_slots, layout)
    src, dst = (_rows_at(pool, _all_layers(pool), slots) for slots in (src_slots, dst_slots))
    is_scratch = dst_slots < pool.shape[3]
    taken = _take(pool.reshape(-1, pool.shape[4]), src)
    return _put(pool, jnp.where(is_scratch[None, :, None], SKIPPED, dst), taken)


def gather_pages(pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Num[Array, "Lg C K page W2"]:
    _check(pool, ids)
    num_layers, _, *page = pool.shape
    parts = _parts_of(pool, ids)
    stretches = pool.reshape(-1, math.prod(page) // parts.shape[2])
    return _take(stretches, parts).reshape(num_layers, len(ids), *page)


def scatter_pages(
    pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"], pages: Num[Array, "Lg C K page W2"]
) -> Num[Array, "Lg P K page W2"]:
    _check(pool, ids)
    return _put(pool, jnp.where((ids == 0)[None, :, None], SKIPPED, _parts_of(pool, ids)), pages)


def _rows_at(
    pool: Num[Array, "Lg P K page W2"], layers: Int[Array, "L"], slots: Int[Array, "C"]
) -> Int[Array, "L C K"]:
    """Numbers of stretches that are rows of the pool."""
    _, num_pages, num_kv_heads, page_size, _ = pool.shape
    page, offset = slots // page_size, slots % page_size
    head = jnp.arange(num_kv_heads, dtype=jnp.int32)
    page = layers[:, None, None] * num_pages + page[None, :, None]
    return (page * num_kv_heads + head[None, None]) * page_size + offset[None, :, None]


def _parts_of(pool: Num[Array, "Lg P K page W2"], ids: Int[Array, "C"]) -> Int[Array, "Lg C parts"]:
    """Numbers of stretches that are equal parts of pages."""
    _, num_pages, num_kv_heads, page_size, _ = pool.shape
    num_rows = num_kv_heads * page_size
    num_parts = num_rows // _largest_divisor(num_rows, MAX_BLOCK_BYTES // _row_bytes(pool))
    page = _all_layers(pool)[:, None, None] * num_pages + ids[None, :, None]
    return page * num_parts + jnp.arange(num_parts, dtype=jnp.int32)[None, None]


def _take(stretches: Num[Array, "N length"], listed: Int[Array, "L C parts"]) -> Num[Array, "M length"]:
    """The listed stretches, contiguous."""
    count, length = listed.size, stretches.shape[1]
    copies = _copies_of_a_block(count, stretches)

    def page_ops_take(listed_ref: Ref, stretches_ref: Ref, taken_ref: Ref, buffer: Ref, filled: Ref) -> None:
        first = lax.axis_index("thread_block") * copies
        for i in range(copies):
            source = stretches_ref.at[listed_ref[first + i]]
            plgpu.copy_gmem_to_smem(source, buffer.at[i], filled, oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS)
        plgpu.barrier_wait(filled)
        plgpu.copy_smem_to_gmem(buffer, taken_ref.at[pl.ds(first, copies)])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        page_ops_take,
        out_type=jax.ShapeDtypeStruct((count, length), stretches.dtype),
        scratch_types=[plgpu.SMEM((copies, length), stretches.dtype), plgpu.Barrier(num_arrivals=copies)],
        grid=(count // copies,),
        grid_names=("thread_block",),
        interpret=gpu_interpretation(),
    )(listed.reshape(-1), stretches)


def _put(
    pool: Num[Array, "Lg P K page W2"], listed: Int[Array, "L C parts"], contents: Num[Array, "..."]
) -> Num[Array, "Lg P K page W2"]:
    """The pool with `contents`, in the list's order, in the listed stretches."""
    contents = contents.reshape(listed.size, -1)
    count, length = contents.shape
    copies = _copies_of_a_block(count, contents)

    def page_ops_put(listed_ref: Ref, contents_ref: Ref, stretches_ref: Ref, buffer: Ref, filled: Ref) -> None:
        first = lax.axis_index("thread_block") * copies
        source = contents_ref.at[pl.ds(first, copies)]
        plgpu.copy_gmem_to_smem(source, buffer, filled, oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS)
        numbers = [listed_ref[first + i] for i in range(copies)]
        plgpu.barrier_wait(filled)
        for i, number in enumerate(numbers):

            @pl.when(number != SKIPPED)
            def _(i: int = i, number: jax.Array = number) -> None:
                plgpu.copy_smem_to_gmem(buffer.at[i], stretches_ref.at[number])

        plgpu.wait_smem_to_gmem(0)

    stretches = jax.new_ref(pool.reshape(-1, length))
    plgpu.kernel(
        page_ops_put,
        scratch_types=[plgpu.SMEM((copies, length), pool.dtype), plgpu.Barrier()],
        grid=(count // copies,),
        grid_names=("thread_block",),
        interpret=gpu_interpretation(),
    )(listed.reshape(-1), contents, stretches)
    return jax.freeze(stretches).reshape(pool.shape)


def _copies_of_a_block(count: int, stretches: jax.Array) -> int:
    stretch_bytes = stretches.shape[1] * stretches.dtype.itemsize
    return _largest_divisor(count, min(MAX_BLOCK_BYTES // stretch_bytes, MAX_BLOCK_COPIES))


def _largest_divisor(n: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if n % d == 0)


def _all_layers(pool: jax.Array) -> Int[Array, "Lg"]:
    return jnp.arange(pool.shape[0], dtype=jnp.int32)


def _row_bytes(pool: jax.Array) -> int:
    return pool.shape[4] * pool.dtype.itemsize


def _check(pool: jax.Array, listed: jax.Array, layout: PageLayout = ROWS) -> None:
    """Raises NotImplementedError for arguments that the kernels do not serve."""
    require_hopper()
    if layout is not ROWS:
        raise NotImplementedError(f"the {layout.name} layout is for TPUs")
    row_bytes = _row_bytes(pool)
    if row_bytes % COPY_BYTES or row_bytes > MAX_BLOCK_BYTES:
        needed = f"a multiple of {COPY_BYTES}, at most {MAX_BLOCK_BYTES}"
        raise NotImplementedError(f"rows have {row_bytes} bytes; copies need {needed}")
    if not len(listed):
        raise NotImplementedError("the list is empty, and a kernel needs a thread block")
