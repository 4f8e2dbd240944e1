"""Device: the product with a layer's rows of packed blocks, decoded some rows at a time.

    rows    P, S, M     P: gate and up, or 1     S: shares of the devices     M: rows of a share
    tile    all P and S, some of M: so each device decodes rows of its own, and of a stack only bytes of one layer

The codes at each place of the bytes are decoded together, and multiplied with their inputs.

A tile takes at most `max_tile_bytes` as it is multiplied: it stays in the caches, or in vector memory.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import target_platform
from pallas_kernels.matmul.cpu_products import F32, contract, cpu_product, cpu_rule
from pallas_kernels.matmul.matmul_spec import MatmulSpec

TILE_BYTES = 2**23
"""On other devices than CPUs: 4096 inputs of 1024 rows: an eighth of a TPU v6e's vector memory."""
MULTIPLE = 8  # of rows of a tile


def max_tile_bytes() -> int:
    """Of the rows that are decoded together."""
    return cpu_rule().tile_bytes if target_platform() == "cpu" else TILE_BYTES


def tile_dtype(num_tokens: int, dtype: Any) -> jnp.dtype:
    """Of decoded rows on a CPU, for so many tokens in `dtype`. To round them to bfloat16 takes longer than it saves
    unless the processor multiplies bfloat16, with some for few tokens, too (`CpuRule.min_bf16_rows`)."""
    least = cpu_rule().min_bf16_rows
    is_rounded = least is not None and num_tokens >= least
    return jnp.dtype(dtype) if is_rounded else F32


def block_product(
    x: Float[Array, "T I"], stack: BlockTensor, layer: Int[Array, ""], spec: MatmulSpec, dtype: Any
) -> Float[Array, "T *out"]:
    """x · wᵀ of a layer, accumulated in float32."""
    if isinstance(next(iter(stack.fields.values())), tuple):
        layers = zip(*stack.fields.values(), strict=True)
        trees = [
            BlockTensor(dict(zip(stack.fields, arrays, strict=True)), stack.form, stack.dtype) for arrays in layers
        ]
        return lax.switch(layer, [partial(_swapped, own, spec, dtype) for own in trees], x)
    return _product(x, stack, layer, spec, dtype)


def _swapped(own: BlockTensor, spec: MatmulSpec, dtype: Any, x: jax.Array) -> jax.Array:
    return _product(x, own, None, spec, dtype)


def _product(
    x: jax.Array, weight: BlockTensor, layer: jax.Array | None, spec: MatmulSpec, dtype: Any
) -> Float[Array, "T *out"]:
    first = next(iter(weight.fields.values()))
    out = first.shape[(layer is not None) : -1]
    num_pairs = out[0] if spec.has_divided_columns else 1
    num_shares = max(1, jax.sharding.get_abstract_mesh().size)
    num_rows = math.prod(out) // num_pairs
    if num_rows % num_shares:  # the devices have no share each
        num_shares = 1
    num_rows //= num_shares
    views = {name: _viewed(field, layer, num_pairs, num_shares, num_rows) for name, field in weight.fields.items()}

    inputs = x.astype(tile_dtype(len(x), x.dtype)) if target_platform() == "cpu" else x
    by_place = [weight.form.at_place(inputs, place) for place in range(weight.form.num_places)]

    def multiply(own: jax.Array, rows: jax.Array) -> Float[Array, "T P S M"]:
        if target_platform() == "cpu" and num_shares == 1:
            # Else the product would round the tile itself, from float32: 8 rows of a layer take 1.04 ms, not 0.92.
            rows = lax.optimization_barrier(rows)
            return cpu_product(own, rows.reshape(-1, rows.shape[-1]), F32).reshape(len(own), *rows.shape[:-1])
        return contract(own, rows, F32)

    def tile(start: jax.Array | int, size: int) -> Float[Array, "T P S M"]:
        fields = {name: _rows_of(view, layer, start, size) for name, view in views.items()}
        decoded = weight.form.decode_places(fields, inputs.dtype)
        products = [multiply(own, rows) for own, rows in zip(by_place, decoded, strict=True)]
        return sum(products[1:], products[0]).astype(dtype)

    row_bytes = num_pairs * num_shares * x.shape[1] * inputs.dtype.itemsize
    size = _tile_rows(num_rows, max(MULTIPLE, max_tile_bytes() // row_bytes // MULTIPLE * MULTIPLE))
    num_tiles = num_rows // size
    if num_tiles == 1:
        found = [tile(0, size)]
    else:
        _, y = lax.scan(lambda _, i: (None, tile(i * size, size)), None, jnp.arange(num_tiles, dtype=jnp.int32))
        found = [jnp.moveaxis(y, 0, 3).reshape(len(x), num_pairs, num_shares, num_tiles * size)]
    if rest := num_rows - num_tiles * size:
        found.append(tile(num_tiles * size, rest))
    return jnp.concatenate(found, axis=3).reshape(len(x), *out)


def _tile_rows(num_rows: int, most: int) -> int:
    """As many rows as leave no rest, if these are more than half of the most that a tile has."""
    if num_rows <= most:
        return num_rows
    whole = (size for size in range(most, most // 2, -MULTIPLE) if num_rows % size == 0)
    return next(whole, most)


def _viewed(field: jax.Array, layer: jax.Array | None, *rows: int) -> jax.Array:
    lead = field.shape[: layer is not None]
    return field.reshape(*lead, *rows, field.shape[-1])


def _rows_of(view: jax.Array, layer: jax.Array | None, start: jax.Array | int, size: int) -> jax.Array:
    """[P, S, size, n]"""
    zero = jnp.int32(0)
    starts, sizes = [zero, zero, jnp.int32(start), zero], [*view.shape[-4:-2], size, view.shape[-1]]
    if layer is None:
        return lax.dynamic_slice(view, starts, sizes)
    return lax.dynamic_slice(view, [layer, *starts], [1, *sizes])[0]
