"""Device: a step's packed codes as weights in registers, slot by slot (`InputOrder`).

A code becomes a number without a conversion: as the lowest bits of the significand of 2^m, m bits long, of which 2^m
is then subtracted. Codes that are floats are moved, and those of a table looked up (`table_values.py`).
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped, UInt32

from pallas_kernels.quant_matmul.mosaic_gpu.blocks.group_terms import GroupTerms, centre, code_dtype
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.input_order import PIECE, InputOrder
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import BYTES, HALVES, WORDS, reinterpreted, spread
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.table_values import table_values

WORDS_OF_PIECE = PIECE // 4
EXPONENT_BIAS = {jnp.dtype(jnp.bfloat16): 127, jnp.dtype(jnp.float16): 15}
SMALL_FLOATS = {"float8_e4m3fn": (3, 7), "float8_e5m2": (2, 15)}
"""Bits of the significand and the exponent's bias."""
MANTISSA_BITS = {jnp.dtype(jnp.bfloat16): 7, jnp.dtype(jnp.float16): 10}


def step_weights(
    planes: dict[str, Shaped[Array, "64 bytes"]],
    terms: GroupTerms,
    order: InputOrder,
    dtype: Any,
    zero: UInt32[Array, ""],
) -> Iterator[Float[Array, "64 K"]]:
    """Of each slot in turn. planes: a step's, by field.

    zero: is 0, which the assembler must not know. It would load a constant mask into a register before each use: 64 of
    422 instructions of a step of Q4_0.
    """
    words = {name: reinterpreted(plane, jnp.uint32, BYTES, WORDS) for name, plane in planes.items()}
    for slot in range(len(order.slots)):
        groups = [order.first_input(slot, piece) // order.form.group_len for piece in range(order.num_pieces)]
        if code_dtype(order.form) in SMALL_FLOATS:
            weights = _floats(words, order, slot, dtype)
        elif values := order.form.values:
            codes = _bits(words, order, slot, jnp.uint32(0), zero)
            weights = _real(table_values(codes, values, dtype), dtype)
        else:
            weights = _numbers(words, order, slot, dtype, zero)
        if terms.zeros is not None:
            weights = weights - spread(terms.zeros, groups)
        weights = weights * spread(terms.scales, groups)
        if terms.offsets is not None:
            weights = weights + spread(terms.offsets, groups)
        yield weights


def _numbers(
    words: dict[str, jax.Array], order: InputOrder, slot: int, dtype: Any, zero: jax.Array
) -> Float[Array, "64 K"]:
    """A slot's codes less the centre of their range."""
    num_bits, middle = sum(plane.bits for plane in order.form.planes), centre(order.form)
    one: int = MANTISSA_BITS[jnp.dtype(dtype)]
    if num_bits <= one:
        bits = _bits(words, order, slot, _power(one, dtype), zero)
        sign = 2 ** (num_bits - 1) - middle  # of signed codes: its bit is that of the lower half
        bits = bits ^ _in_halves(sign) if sign else bits
        return _real(bits, dtype) - jnp.asarray(2**one + middle + sign, dtype)
    # The eighth bit of bfloat16's seven is the lowest one of the exponent, which doubles 2^m.
    bits = _bits(words, order, slot, jnp.uint32(0), zero)
    low, top = (bits & _in_halves(2**one - 1)) | _power(one, dtype), bits & _in_halves(2**one)
    top = top ^ _power(one + 1, dtype) if middle else top | _power(one, dtype)
    return _real(low, dtype) - _real(top, dtype)


def _floats(words: dict[str, jax.Array], order: InputOrder, slot: int, dtype: Any) -> Float[Array, "64 K"]:
    """A slot's codes that are floats: sign, exponent and significand at the places that a larger type has them, whose
    exponent has another bias. Subnormal numbers become subnormal ones before they are multiplied."""
    own_bits, own_bias = SMALL_FLOATS[code_dtype(order.form)]
    (field,), (_, half) = words.values(), order.slots[slot]
    place = MANTISSA_BITS[jnp.dtype(dtype)] - own_bits
    magnitude = _moved(field, 8 * half, place) & _in_halves(0x7F << place)
    bits = magnitude | (_moved(field, 8 * half, 8) & _in_halves(0x8000))
    bias = EXPONENT_BIAS[jnp.dtype(dtype)] - own_bias
    return _real(bits, dtype) * jnp.asarray(2.0**bias, dtype) if bias else _real(bits, dtype)


def _bits(
    words: dict[str, jax.Array], order: InputOrder, slot: int, power: jax.Array, zero: jax.Array
) -> UInt32[Array, "64 words"]:
    """A slot's codes in the lowest bits of the halves of words, whose other bits are those of `power`."""
    base, *others = order.form.planes
    shift, half = order.slots[slot]
    found = (_moved(words[base.field], 8 * half + shift, 0) & (_in_halves(2**base.bits - 1) + zero)) | power
    position = base.bits
    for plane in others:
        pieces: list[jax.Array] = []
        for piece in range(order.num_pieces):
            source, shift = order.place(plane, order.first_input(slot, piece))
            own = words[plane.field][:, WORDS_OF_PIECE * source : WORDS_OF_PIECE * (source + 1)]
            pieces.append(_moved(own, 8 * half + shift, position))
        found |= jnp.concatenate(pieces, axis=1) & (_in_halves((2**plane.bits - 1) << position) + zero)
        position += plane.bits
    return found


def _moved(words: jax.Array, source: int, target: int) -> jax.Array:
    """With the bits from `source` on in each half of a word at `target`."""
    if source >= target:
        return words >> jnp.uint32(source - target) if source > target else words
    return words << jnp.uint32(target - source)


def _real(words: jax.Array, dtype: Any) -> jax.Array:
    return reinterpreted(words, dtype, WORDS, HALVES)


def _power(exponent: int, dtype: Any) -> jax.Array:
    """2^exponent in each half of a word."""
    return _in_halves(int(np.asarray(2.0**exponent, dtype).view(np.uint16)))


def _in_halves(bits: int) -> jax.Array:
    return jnp.uint32(bits * 0x10001)
