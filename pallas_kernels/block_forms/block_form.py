"""Device: `BlockForm`: how blocks of a row's inputs are packed: codes of a few bits, and scales of groups of them.

    w[i] = (code[i] - zero[group of i]) · scale[group of i] + offset[group of i]

A form describes the bytes of a block as its file has them, or as kernels read them in their place (`wide_blocks.py`).
On the device each field is an array of its own, so that a field is aligned and no byte is added; its last axis runs
over the blocks of a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from pallas_kernels.block_forms.looked_up import looked_up

Fields = Mapping[str, Any]
"""Arrays [*out, blocks · count] by the names of a form's fields."""


class Scales(NamedTuple):
    """Of groups, [*out, groups], in a real dtype. zeros: None: all have that of the form."""

    scales: jax.Array
    offsets: jax.Array | None = None
    zeros: jax.Array | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """count: values of this dtype in a block."""

    name: str
    dtype: str
    count: int

    @property
    def num_bytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Plane:
    """Some bits of all codes, in bytes of a field. Of `run` bytes, the lowest bits are those of the first `run` codes,
    the next bits those of the next `run` codes."""

    field: str
    bits: int
    run: int


@dataclass(frozen=True, slots=True)
class BlockForm:
    """block_len: inputs of a block. fields: in the order of the file's bytes. planes: of the codes, from the lowest
    bits up. group_len: inputs that share a scale. zero: the code of the value 0, if
    groups have none of their own. values: of all codes; none: codes are numbers.
    has_order: a row's inputs are not in order, but in one that each matrix has (`BlockTensor.order`)."""

    name: str
    block_len: int
    fields: tuple[Field, ...]
    planes: tuple[Plane, ...]
    group_len: int
    scales: Callable[[Fields, Any], Scales]
    zero: int = 0
    values: tuple[float, ...] = ()
    has_order: bool = False

    @property
    def block_bytes(self) -> int:
        return sum(field.num_bytes for field in self.fields)

    def num_inputs(self, num_values: int) -> int:
        """Of a row whose first field has so many values."""
        return num_values // self.fields[0].count * self.block_len

    def split(self, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """The fields [rows, blocks · count] of bytes [rows, blocks · block_bytes] of a file."""
        blocks = blocks.reshape(len(blocks), -1, self.block_bytes)
        fields: dict[str, np.ndarray] = {}
        start = 0
        for field in self.fields:
            own = np.ascontiguousarray(blocks[:, :, start : start + field.num_bytes])
            fields[field.name] = own.view(np.dtype(field.dtype).newbyteorder("<")).reshape(len(blocks), -1)
            start += field.num_bytes
        return fields

    @property
    def num_places(self) -> int:
        """Codes in a byte of the first plane."""
        return 8 // self.planes[0].bits

    def at_place(self, values: Shaped[Array, "*lead I"], place: int) -> Shaped[Array, "*lead J"]:
        """Of one value for each input, those of the inputs whose codes have this place in their byte."""
        runs = values.reshape(*values.shape[:-1], -1, self.num_places, self.planes[0].run)
        return runs[..., place, :].reshape(*values.shape[:-1], -1)

    def decode(self, fields: Fields, dtype: Any) -> Float[Array, "*out I"]:
        """The values, computed in float32 or float64 as `dtype` is the latter."""
        run = self.planes[0].run
        runs = [values.reshape(*values.shape[:-1], -1, run) for values in self.decode_places(fields, dtype)]
        joined = jnp.stack(runs, axis=-2)
        return joined.reshape(*joined.shape[:-3], -1)

    def decode_places(self, fields: Fields, dtype: Any) -> list[Float[Array, "*out J"]]:
        """The values of each place (`at_place`): a vector of bytes becomes a vector of values, while XLA on CPU would
        put those of all inputs in order together one by one (Q4_0, 3072 x 576, two cores with AVX-512: 0.26 ms, not
        0.9)."""
        real = jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32
        # Once for each group: XLA on CPU would decode a group's scale again for each of its inputs.
        terms: Scales = lax.optimization_barrier(self.scales(fields, real))
        first, *others = self.planes
        unpacked = [_unpacked(fields[plane.field], plane) for plane in others]
        found: list[jax.Array] = []
        for place in range(self.num_places):
            codes, shift = fields[first.field], first.bits
            if self.num_places > 1:
                codes = (codes >> jnp.uint8(place * first.bits)) & jnp.uint8(2**first.bits - 1)
            for plane, bits in zip(others, unpacked, strict=True):
                codes = codes | (self.at_place(bits, place) << jnp.uint8(shift))
                shift += plane.bits
            found.append(self._values(codes, terms, place, real).astype(dtype))
        return found

    def _values(self, codes: Shaped[Array, "*out J"], terms: Scales, place: int, real: Any) -> Float[Array, "*out J"]:
        scales, offsets, zeros = (None if term is None else self._of_groups(term, place) for term in terms)
        assert scales is not None
        pieces = codes.reshape(*scales.shape[:-1], -1)
        values = looked_up(pieces.astype(jnp.int32), self.values, real) if self.values else pieces.astype(real)
        if zeros is not None:
            values = values - zeros
        elif self.zero:
            values = values - self.zero
        values = values * scales
        if offsets is not None:
            values = values + offsets
        return values.reshape(codes.shape)

    def _of_groups(self, by_group: Float[Array, "*out G"], place: int) -> Float[Array, "*out pieces 1"]:
        """Of those inputs at a place that follow each other and have one group."""
        groups, rest = divmod(self.planes[0].run, self.group_len)
        if rest == 0:  # runs have whole groups
            by_run = by_group.reshape(*by_group.shape[:-1], -1, self.num_places, groups)
            by_group = by_run[..., place, :].reshape(*by_group.shape[:-1], -1)
        else:  # groups have runs of all places
            assert self.group_len % (self.planes[0].run * self.num_places) == 0
        return by_group[..., None]


def _unpacked(field: Shaped[Array, "*out n"], plane: Plane) -> Shaped[Array, "*out I"]:
    lead = field.shape[:-1]
    if plane.bits == 8:
        return field
    runs = field.reshape(*lead, -1, plane.run)
    runs, shape = runs[..., None, :], (*runs.shape[:-1], 8 // plane.bits, plane.run)
    shifts = plane.bits * lax.broadcasted_iota(field.dtype, shape, len(shape) - 2)
    return ((jnp.broadcast_to(runs, shape) >> shifts) & jnp.uint8(2**plane.bits - 1)).reshape(*lead, -1)
