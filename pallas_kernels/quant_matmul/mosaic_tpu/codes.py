"""Device: codes of packed blocks as numbers, in the TPU kernel.

    bytes [rows, O]  ──bitcast──▶  integers of 4 bits [2 · rows, O]  ──▶  numbers

A TPU unpacks integers of 4 and 8 bits that lie in the sublanes of a register, in the order of the bytes.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, UInt8, UInt32

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.looked_up import looked_up
from pallas_kernels.kernel_types import Ref, Refs, Scalar
from pallas_kernels.quant_matmul.mosaic_tpu.code_order import LINE_BYTES, Chunk, Line, codes_of_byte

SIGNS = {4: 0x88888888, 8: 0x80808080}
"""Of the numbers of a word. Inverted, unsigned codes are signed ones, less by half of their range."""


def zero_of(form: BlockForm) -> int:
    """By which the kernel's codes are less than the form's. Signed ones, floats and looked up values are numbers as
    they are."""
    plane = form.planes[0]
    (dtype,) = (field.dtype for field in form.fields if field.name == plane.field)
    return 2 ** (plane.bits - 1) if dtype == "uint8" and not form.values else 0


def codes(form: BlockForm, fields: Refs, chunk: Chunk, number: Scalar, dtype: jnp.dtype) -> Float[Array, "K O"]:
    """Of a chunk, less `zero_of(form)`, in the kernel's order; values that are looked up are float32. fields: [1, 1,
    blocks · count, O]."""
    first = form.planes[0]
    num_rows = chunk.inputs // codes_of_byte(form)
    start = chunk.first_byte(number, first.bits)
    rows = fields[first.field][0, 0, pl.ds(start, num_rows), :]
    if form.values:  # of 4 bits, whose signs say nothing
        return looked_up(pltpu.bitcast(rows, jnp.int4).astype(jnp.int32), form.values, jnp.float32)
    if zero_of(form):
        rows = pltpu.bitcast(pltpu.bitcast(rows, jnp.uint32) ^ jnp.uint32(SIGNS[first.bits]), jnp.int8)
    found = (pltpu.bitcast(rows, jnp.int4) if first.bits == 4 else rows).astype(dtype)
    shift = first.bits
    for i, lines in chunk.lines.items():
        plane = form.planes[i]
        start = chunk.first_byte(number, plane.bits)
        words = [_other_bits(fields[plane.field], start, line, plane.bits) for line in lines]
        other = pltpu.bitcast(jnp.concatenate(words), jnp.int4).astype(dtype)
        found = found + other * jnp.asarray(2**shift, dtype)
        shift += plane.bits
    return found


def _other_bits(field: Ref, start: Scalar, line: tuple[Line, ...], bits: int) -> UInt32[Array, "8 O"]:
    """Those of both codes of each byte of a line, in its halves."""
    mask = jnp.uint32((2**bits - 1) * 0x01010101)
    word: jax.Array | None = None
    for half, (offset, shift) in enumerate(line):
        own: UInt8[Array, "32 O"] = field[0, 0, pl.ds(pl.multiple_of(start + offset, LINE_BYTES), LINE_BYTES), :]
        found = (pltpu.bitcast(own, jnp.uint32) >> jnp.uint32(shift)) & mask
        word = found if word is None else word | lax.shift_left(found, jnp.uint32(4 * half))
    assert word is not None
    return word
