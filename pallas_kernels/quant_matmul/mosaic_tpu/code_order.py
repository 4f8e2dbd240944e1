"""Device: the order in which the TPU kernel multiplies a row's inputs: that of the codes in the bytes of the first
plane, the lowest bits of each byte first.

    Q4_0, a block of 32 inputs in 16 bytes      byte 0: inputs 0 and 16    byte 1: inputs 1 and 17    …
    order                                       0 16 1 17 2 18 …

Codes are never moved, because each move would cost as much as decoding them: the activations, of which there are few,
are brought into this order, and other planes and scales are looked up for whole runs of bytes. A matrix unit moves the
activations: XLA's copies for that are 150,000 cycles for 64 rows of 14,336 inputs on a v6e, twice those of the product.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from pallas_kernels.block_forms.block_form import BlockForm, Plane
from pallas_kernels.kernel_types import Scalar
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.quant_matmul.last_step import step_start

CHUNKS = (512, 256, 128)
"""Inputs that are multiplied at once. The sums are read and written once for each chunk: with 64 rows and 512 outputs
of Q4_0, two of 512 inputs take 517 bundles of a TPU v6e, four of 256 inputs 574."""
LINE_BYTES = 32
"""Bytes of a plane that are one row of 32-bit words in 8 sublanes: the least that is looked up."""
MIN_RUN = 16
"""Inputs of a chunk with the same scales: sublanes of a register of bfloat16."""


class Run(NamedTuple):
    """Inputs [start, stop) of a chunk, in order. groups: of the first code of each byte, of the second, …; counted from
    the chunk's first group."""

    start: int
    stop: int
    groups: tuple[int, ...]


class Line(NamedTuple):
    """Of `LINE_BYTES` bytes of the first plane, where a code's other bits are. start: in the plane's bytes of a chunk.
    shift: of the first bit in a byte."""

    start: int
    shift: int


@dataclass(frozen=True)
class Chunk:
    """What is alike in all chunks of a matrix.

    num_inputs: of a row. runs: cover a chunk's inputs. lines: by the number of the plane, lines in order, for each code
    of a byte.
    """

    inputs: int
    num_inputs: int
    runs: tuple[Run, ...]
    lines: dict[int, tuple[tuple[Line, ...], ...]]

    def first_byte(self, number: Scalar, bits: int) -> Scalar:
        """Of a chunk, in a plane of so many bits of each code."""
        size, total = self.inputs * bits // 8, self.num_inputs * bits // 8
        return pl.multiple_of(step_start(number, size, total), math.gcd(size, total))

    def first_group(self, number: Scalar, group_len: int) -> Scalar:
        """In which a chunk's first input is."""
        return step_start(number, self.inputs, self.num_inputs) // group_len


def codes_of_byte(form: BlockForm) -> int:
    """In the first plane."""
    return 8 // form.planes[0].bits


def order_matrix(form: BlockForm, dtype: Any) -> Float[Array, "128 128"] | None:
    """By which 128 inputs are brought into the kernel's order: a 1 in each column. None: they are in it."""
    if codes_of_byte(form) == 1:
        return None
    run, shape = form.planes[0].run, (NUM_LANES, NUM_LANES)
    column = lax.broadcasted_iota(jnp.int32, shape, 1)
    place = column % (2 * run)
    source = column - place + place % 2 * run + place // 2
    return (lax.broadcasted_iota(jnp.int32, shape, 0) == source).astype(dtype)


@cache
def chunk_of(form: BlockForm, num_inputs: int) -> Chunk:
    """Raises NotImplementedError for what the kernel does not serve."""
    first = form.planes[0]
    if first.bits not in (4, 8):
        raise NotImplementedError(
            f"it reads codes whose lowest 4 or 8 bits are together, not {first.bits} of {form.name}"
        )
    fits = (size for size in CHUNKS if num_inputs % size == 0 or _ends_with_row(form, size, num_inputs))
    if first.bits == 4 and NUM_LANES % _unit(first):
        raise NotImplementedError(f"two codes of a byte of {form.name} are of inputs more than {NUM_LANES} apart")
    size = next((size for size in fits if _is_whole(form, size)), None)
    if size is None:
        raise NotImplementedError(f"{num_inputs} inputs are no chunks of 128, 256 or 512 for {form.name}")
    runs = tuple(_runs(form, size))
    if any((run.stop - run.start) % MIN_RUN for run in runs):
        raise NotImplementedError(f"groups of {form.group_len} are no multiple of {MIN_RUN}")
    return Chunk(size, num_inputs, runs, {i: _lines(form, plane, size) for i, plane in enumerate(form.planes) if i})


def _inputs(form: BlockForm, size: int) -> np.ndarray:
    """Those of a chunk, counted from its first, [bytes, codes of a byte]."""
    codes = codes_of_byte(form)
    units = np.arange(size).reshape(-1, codes, form.planes[0].run if codes > 1 else 1)
    return units.swapaxes(1, 2).reshape(-1, codes)


def _unit(plane: Plane) -> int:
    """Inputs of a run of bytes."""
    return plane.run * 8 // plane.bits


def _ends_with_row(form: BlockForm, size: int, num_inputs: int) -> bool:
    """Whether a last chunk may begin within the one before (`last_step`): at a line of each plane, and a group. The
    smallest chunks have the least in common."""
    lines = (num_inputs * plane.bits // 8 % LINE_BYTES == 0 for plane in form.planes)
    return size == CHUNKS[-1] <= num_inputs and num_inputs % form.group_len == 0 and all(lines)


def _is_whole(form: BlockForm, size: int) -> bool:
    """Whether all chunks are alike: they have whole units of all planes, and whole groups, or lie within one."""
    first, *others = form.planes
    has_units = codes_of_byte(form) == 1 or size % _unit(first) == 0
    return (
        has_units
        and all(size % _unit(plane) == 0 for plane in others)
        and (size % form.group_len == 0 or form.group_len % size == 0)
    )


def _runs(form: BlockForm, size: int) -> Iterator[Run]:
    parts = codes_of_byte(form)
    if form.group_len >= size:
        yield Run(0, size, (0,) * parts)
        return
    groups = _inputs(form, size) // form.group_len
    edges = [0, *(np.flatnonzero((groups[1:] != groups[:-1]).any(axis=1)) + 1).tolist(), len(groups)]
    for start, stop in pairwise(edges):
        yield Run(start * parts, stop * parts, tuple(groups[start].tolist()))


def _lines(form: BlockForm, plane: Plane, size: int) -> tuple[tuple[Line, ...], ...]:
    """Raises NotImplementedError where the codes of a line have their other bits in several."""
    inputs = _inputs(form, size).reshape(-1, LINE_BYTES, codes_of_byte(form))
    unit, place = np.divmod(inputs, _unit(plane))
    shifts, byte = np.divmod(place, plane.run)
    starts = unit * plane.run + byte - np.arange(LINE_BYTES)[:, None]
    if (starts != starts[:, :1]).any() or (shifts != shifts[:, :1]).any():
        raise NotImplementedError(f"bits of {form.name} lie in runs of {plane.run} bytes, and it reads {LINE_BYTES}")
    return tuple(
        tuple(Line(start, shift * plane.bits) for start, shift in zip(*rows, strict=True))
        for rows in zip(starts[:, 0].tolist(), shifts[:, 0].tolist(), strict=True)
    )
