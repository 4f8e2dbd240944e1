"""Device: views of arrays in registers that Pallas has no operation for. They move nothing between threads.

A warpgroup's thread has the same rows of a tile of 64 columns in all of these layouts (here a column of the product is
a row): `BYTES`, `WORDS` and `HALVES` give it the same 32 bits of a row, `per_row` gives it all of a row.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.mosaic.gpu import fragmented_array as fragments
from jax.experimental.mosaic.gpu import utils
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Num, Shaped, UInt8, UInt32

from pallas_kernels.block_forms.looked_up import looked_up
from pallas_kernels.dispatch import gpu_interpretation
from pallas_kernels.kernel_types import Ref

Layout = Any
BYTES: Layout = plgpu.Layout.WGMMA_8BIT
WORDS: Layout = plgpu.Layout.TILED(
    fragments.Tiling(((64, 4), (16, 4), (8, 4), (1,))), warp_dims=(-7,), lane_dims=(-3, -2), vector_dim=-1
)
HALVES: Layout = plgpu.Layout.WGMMA
"""What a wgmma takes from registers."""


def per_row(width: int) -> Layout:
    """Each thread has whole rows, in vectors of so many elements."""
    tiling = fragments.Tiling(((64, width), (16, width), (8, width)))
    lanes = (-2, fragments.Replicated(4))
    return plgpu.Layout.TILED(tiling, warp_dims=(-6,), lane_dims=lanes, vector_dim=-1)


def reinterpreted(x: Shaped[Array, "64 n"], dtype: Any, source: Layout, target: Layout) -> Shaped[Array, "64 m"]:
    """The same bits as elements of another size, the lowest bits first."""
    old, new = x.dtype.itemsize, jnp.dtype(dtype).itemsize
    shape = (x.shape[0], x.shape[1] * old // new)

    def bitcast(registers: np.ndarray, target_type: Any) -> list[Any]:
        return [utils.bitcast(register, target_type) for register in registers.flat]

    if gpu_interpretation() is None:
        return _view(bitcast, x, source, shape, dtype, target)
    return lax.bitcast_convert_type(x.reshape(*shape, -1) if new > old else x, dtype).reshape(shape)


def apart(x: Shaped[Array, "64 n"], width: int) -> Shaped[Array, "64 n"]:
    """Vectors `per_row` as single elements, of which slices can be taken."""

    def elements(registers: np.ndarray, _: Any) -> list[Any]:
        lines, tiles, *rest = registers.shape
        split = np.empty((lines, tiles * width, *rest), object)
        for (line, tile, *at), vector in np.ndenumerate(registers):
            for i in range(width):
                split[(line, tile * width + i, *at)] = utils.vector_slice(vector, slice(i, i + 1))
        return list(split.flat)

    if width == 1 or gpu_interpretation() is not None:
        return x
    return _view(elements, x, per_row(width), x.shape, x.dtype, per_row(1))


def spread(x: Num[Array, "64 n"], index: Sequence[int]) -> Num[Array, "64 m"]:
    """Column index[j // 8] of a `per_row(1)` in each column j, as `HALVES`."""
    shape = (x.shape[0], 8 * len(index))

    def pairs(registers: np.ndarray, _: Any) -> list[Any]:
        return [utils.vector_concat([v, v]) for v in registers[:, list(index)].flat]

    if gpu_interpretation() is None:
        return _view(pairs, x, per_row(1), shape, x.dtype, HALVES)
    return jnp.concatenate([jnp.broadcast_to(x[:, i : i + 1], (shape[0], 8)) for i in index], axis=1)


def table_bytes(table: Sequence[int], selectors: UInt32[Array, "64 n"]) -> UInt32[Array, "64 n"]:
    """Words of four of a table's 8 bytes each: those that the four lowest hexadecimal digits of a selector name, from 0
    to 7 (PTX's `prmt`, which takes one instruction)."""

    def permuted(registers: np.ndarray, target_type: Any) -> list[Any]:
        untyped: Any = utils  # these functions have types that pyright does not know
        i32 = untyped.dtype_to_ir_type(jnp.dtype(jnp.int32))
        low, high = (untyped.c(word, i32) for word in np.asarray(table, np.uint8).view(np.int32).tolist())
        # PTX counts bytes from the first operand, which JAX names "high".
        found = (untyped.prmt(low, high, untyped.bitcast(register, i32)) for register in registers.flat)
        return [untyped.bitcast(word, target_type) for word in found]

    if gpu_interpretation() is None:
        return _view(permuted, selectors, WORDS, selectors.shape, jnp.uint32, WORDS)
    digits = ((selectors >> jnp.uint32(4 * i)) & jnp.uint32(7) for i in range(4))
    parts = [looked_up(digit, table, jnp.uint32) << jnp.uint32(8 * i) for i, digit in enumerate(digits)]
    return parts[0] | parts[1] | parts[2] | parts[3]


def shared_values(table: Ref, codes: UInt8[Array, "64 n"]) -> Float[Array, "64 n"]:
    """table[code] in float32. table: in shared memory, from which each thread loads the values of its codes, which are
    `per_row(1)`."""

    def loaded(registers: np.ndarray, target_type: Any, values: Any) -> list[Any]:
        untyped: Any = utils
        vector, index_type = untyped.vector, untyped.ir.IndexType.get()
        codes = (vector.extract(register, dynamic_position=[], static_position=[0]) for register in registers.flat)
        found = [untyped.memref.load(values, [untyped.arith.index_castui(index_type, code)]) for code in codes]
        # The assembler would move these loads among those of the weights' codes, for which registers are then missing.
        untyped.warp_barrier()
        return [vector.broadcast(target_type, value) for value in found]

    if gpu_interpretation() is None:
        return _view(loaded, codes, per_row(1), codes.shape, jnp.float32, per_row(1), table)
    return jnp.take(table[...], codes.astype(jnp.int32), axis=0, mode="clip")


def _view(
    rule: Callable[..., list[Any]],
    x: jax.Array,
    source: Layout,
    shape: tuple[int, ...],
    dtype: Any,
    target: Layout,
    *refs: Ref,
) -> jax.Array:
    """The array whose registers in a thread are those that the rule makes of x's, in order, and of memory."""
    result = plgpu.ShapeDtypeStruct(shape, jnp.dtype(dtype), layout=target)

    @plgpu.inline_mgpu(arg_types=(source, *[plgpu.RefType()] * len(refs)), return_type=result)
    def view(_: Any, array: Any, *memory: Any) -> Any:
        layout = target.to_mgpu()
        register_type = layout.registers_element_type(utils.dtype_to_ir_type(jnp.dtype(dtype)))
        registers = np.empty(layout.registers_shape(shape), object)
        registers.flat = rule(array.registers, register_type, *memory)
        is_signed = utils.is_signed(dtype)
        return fragments.FragmentedArray(_registers=registers, _layout=layout, _is_signed=is_signed)

    return cast(jax.Array, cast(Any, view)(x, *refs))
