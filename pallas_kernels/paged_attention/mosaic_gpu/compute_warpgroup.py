"""Device: a compute warpgroup of a GPU attention kernel: 64 query lines against the blocks in the ring.

    wait for a block · S = Q·Kᵀ (wgmma) · mask · online softmax · O = O·α + P·V (wgmma) · free the block

Scores are in base 2. O stays in registers, and P·V is added to it there (FlashAttention-3, Shah et al. 2024, §3). Two
warpgroups of a thread block are not synchronized, so that one can exponentiate while the other multiplies.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.mosaic_gpu import WGMMAAccumulatorRef as ACC

from pallas_kernels.gpu_ring import buffer_of
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.paged_attention.attention_spec import AttentionSpec
from pallas_kernels.paged_attention.mosaic_gpu.kernel_sizes import LINES, KernelSizes
from pallas_kernels.paged_attention.mosaic_gpu.memory_warpgroup import Item
from pallas_kernels.paged_attention.softmax_constants import LOG2_E, LOWEST

MATRIX = plgpu.Layout.WGMMA
COLUMN = MATRIX.reduce(1)
"""Layout of one number per line."""

Carry = tuple[jax.Array, jax.Array, tuple[jax.Array, ...]]
"""Sum of weights and highest score of each line, and the weighted sums by groups of lanes."""
Lanes = Callable[[int, int, int], Ref]


def attend_item(refs: Refs, item: Item, group: jax.Array, sizes: KernelSizes, spec: AttentionSpec) -> None:
    """Outputs of warpgroup `group`'s lines over the item's blocks, normalized, and the logarithms of their sums."""
    queries = refs["queries"].at[group]
    used = pl.ds(0, sizes.num_lines)
    plgpu.copy_gmem_to_smem(
        refs["q"].at[item.tile, item.head, group], queries.at[used], refs["queries_filled"].at[group]
    )
    plgpu.barrier_wait(refs["queries_filled"].at[group])
    k_scale = refs["k_scale"][item.head] if "k_scale" in refs else None
    visible = _visibility(refs, item, group, sizes)

    def step(block: jax.Array, carry: Carry, is_edge: bool) -> Carry:
        total, highest, parts = carry
        buffer = buffer_of(block, item.begin, sizes.depth)
        plgpu.barrier_wait(refs["filled"].at[buffer])
        lanes_of = _context(refs, item, group, sizes, spec, block, is_edge)

        def products(accumulator: Ref) -> jax.Array:
            plgpu.wgmma(accumulator, queries, lanes_of(0, 0, sizes.head_dim).transpose((1, 0)))
            return accumulator[...]

        found = pl.run_scoped(products, ACC((LINES, sizes.positions), jnp.float32))
        found, factor = _scores(spec, found, k_scale)
        if is_edge:
            found = jnp.where(visible(block), found, -jnp.inf)
        higher = jnp.maximum(highest, found.max(axis=1) * factor)
        weights = jnp.exp2(found * factor - _by_line(higher, sizes.positions))
        decay = jnp.exp2(highest - higher)
        total = total * decay + weights.sum(axis=1)
        weights = weights.astype(sizes.dtype)
        parts = tuple(
            weighted(part * _by_line(decay, sizes.width), weights, i * sizes.width, lanes_of)
            for i, part in enumerate(parts)
        )
        plgpu.barrier_arrive(refs["freed"].at[buffer])
        return total, higher, parts

    def weighted(part: jax.Array, weights: jax.Array, first_lane: int, lanes_of: Lanes) -> jax.Array:
        """`part`, the sums of lanes from `first_lane` on, with a block's values added."""

        def values() -> Ref:
            return lanes_of(sizes.num_spans - 1, sizes.value_start + first_lane, sizes.width)

        if "weights" not in refs:

            def multiply(sums: Ref) -> None:
                plgpu.wgmma(sums, weights, values())

            return cast(jax.Array, pl.run_state(multiply)(ACC.init(part)))
        # The interpreter supports neither operands in registers nor accumulation into an existing sum.
        refs["weights"][group] = weights
        plgpu.commit_smem()

        def products(accumulator: Ref) -> jax.Array:
            plgpu.wgmma(accumulator, refs["weights"].at[group], values())
            return accumulator[...]

        return part + pl.run_scoped(products, ACC((LINES, sizes.width), jnp.float32))

    nothing = _full((LINES, sizes.width), 0.0, MATRIX)
    carry = _full((LINES,), 0.0, COLUMN), _full((LINES,), LOWEST, COLUMN), (nothing,) * (sizes.head_dim // sizes.width)
    whole_begin = jnp.clip(item.whole_begin, item.begin, item.end)
    whole_end = jnp.clip(item.whole_end, whole_begin, item.end)
    carry = lax.fori_loop(item.begin, whole_begin, partial(step, is_edge=True), carry)
    carry = lax.fori_loop(whole_begin, whole_end, partial(step, is_edge=False), carry)
    total, highest, parts = lax.fori_loop(whole_end, item.end, partial(step, is_edge=True), carry)

    total = jnp.maximum(total, np.finfo(np.float32).tiny)
    refs["sums"][group] = highest + jnp.log2(total)
    outputs = refs["outputs"].at[group]
    for i, part in enumerate(parts):
        outputs[...] = (part / _by_line(total, sizes.width)).astype(sizes.out_dtype)
        plgpu.commit_smem()
        lanes = pl.ds(i * sizes.width, sizes.width)
        plgpu.copy_smem_to_gmem(outputs.at[used], refs["o"].at[item.number, item.head, group, :, lanes])
        plgpu.wait_smem_to_gmem(0)
    plgpu.copy_smem_to_gmem(refs["sums"].at[group], refs["log_sums"].at[item.number, item.head, group])
    plgpu.wait_smem_to_gmem(0)


def _scores(spec: AttentionSpec, products: jax.Array, k_scale: jax.Array | None) -> tuple[jax.Array, Any]:
    """(x, factor): the scores in base 2 are x · factor."""
    if spec.softcap is None:
        factor = spec.scale * LOG2_E
        return products, factor if k_scale is None else factor * k_scale
    inner = spec.scale / spec.softcap
    return jnp.tanh(products * (inner if k_scale is None else inner * k_scale)), spec.softcap * LOG2_E


def _visibility(refs: Refs, item: Item, group: jax.Array, sizes: KernelSizes) -> Callable[[jax.Array], jax.Array]:
    """A function from a block to a mask: whether each line attends to each of its positions."""

    def column(ref: Ref) -> jax.Array:
        return plgpu.load(ref, layout=COLUMN, optimized=False)

    last = column(refs["last"].at[item.tile, group])
    first = column(refs["first"].at[item.tile, group]) if "first" in refs else None
    num_words = refs["words"].shape[1] if "words" in refs else 0
    words = [column(refs["words"].at[item.tile, i, group]) for i in range(num_words)]

    def visible(block: jax.Array) -> jax.Array:
        size = (LINES, sizes.positions)
        key = plgpu.broadcasted_iota(jnp.int32, size, 1, layout=MATRIX) + block * sizes.positions
        seen = key >= (0 if first is None else _by_line(first, sizes.positions))
        for i, word in enumerate(words):
            node = key - (item.first_new + 32 * i)
            bit = lax.shift_right_arithmetic(_by_line(word, sizes.positions), jnp.clip(node, 0, 31)) & 1
            seen = jnp.where((node >= 0) & (node < 32), bit == 1, seen)
        return seen & (key <= _by_line(last, sizes.positions))

    return visible


def _context(
    refs: Refs,
    item: Item,
    group: jax.Array,
    sizes: KernelSizes,
    spec: AttentionSpec,
    block: jax.Array,
    is_edge: bool,
) -> Lanes:
    """A function from a span, a first lane and a number of lanes to that part of a block, [positions, lanes], in shared
    memory: in the type of the queries, and 0 where no token of the row attends, since a weight of 0 does not hide NaN.
    """
    start = block * sizes.positions
    seen_from = jnp.int32(0) if spec.window is None else item.first_new - (spec.window - 1)
    buffer = buffer_of(block, item.begin, sizes.depth)
    narrow = refs["ring"].at[buffer]
    if sizes.is_narrow:
        _rewrite(narrow, refs["wide"].at[group], sizes.ring_tile, start, seen_from, item.kv_len)
        return lambda span, lane, width: refs["wide"].at[group, span, :, pl.ds(lane, width)]
    if is_edge:

        @pl.when((start + sizes.positions > item.kv_len) | (start < seen_from))
        def _() -> None:
            @pl.when(group == 0)
            def _() -> None:
                _rewrite(narrow, narrow, sizes.ring_tile, start, seen_from, item.kv_len)

            if sizes.num_groups > 1:
                plgpu.barrier_arrive(refs["cleared"])
                plgpu.barrier_wait(refs["cleared"])

    return lambda span, lane, width: refs["ring"].at[buffer, span, :, pl.ds(lane, width)]


def _rewrite(
    source: Ref, destination: Ref, width: int, start: jax.Array, seen_from: jax.Array, seen_to: jax.Array
) -> None:
    """Copies a block in the type of `destination`, 0 outside [seen_from, seen_to), `width` lanes at a time."""
    num_spans, positions, span_len = source.shape
    position = plgpu.broadcasted_iota(jnp.int32, (positions, width), 0, layout=MATRIX) + start
    is_seen = (position >= seen_from) & (position < seen_to)
    for span in range(num_spans):
        for lane in range(0, span_len, width):
            at = (span, slice(None), pl.ds(lane, width))
            x = plgpu.load(source.at[at], layout=MATRIX, optimized=False)
            if x.dtype.itemsize == 1 and jnp.issubdtype(x.dtype, jnp.floating):
                x = x.astype(jnp.float16).astype(jnp.float32)  # Hopper's only conversion; float16 holds all
            x = x.astype(destination.dtype)
            destination[at] = jnp.where(is_seen, x, jnp.zeros_like(x))
    plgpu.commit_smem()


def _by_line(x: jax.Array, width: int) -> jax.Array:
    return lax.broadcast_in_dim(x, (LINES, width), [0])


def _full(shape: tuple[int, ...], value: float, layout: Any) -> jax.Array:
    return cast(jax.Array, plgpu.layout_cast(jnp.full(shape, value, jnp.float32), layout))
