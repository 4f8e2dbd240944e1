"""Device: `FieldBox`: the part of a field of blocks that a step's copy has. Copies (TMA) begin and end at 16 bytes. Of
a field whose rows do not, such as a number for each 256 inputs of 7168, a tile's rows are copied whole, once. Steps
may share a value, such as the one offset of a row.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.block_forms.block_form import BlockForm, Field
from pallas_kernels.block_forms.table_forms import num_parted_runs
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
from pallas_kernels.quant_matmul.last_step import step_start

COPIED_BYTES = 16
MAX_COPIED = 256
"""Along an axis."""
MAX_WHOLE_BYTES = 512
"""Of a row with more values than that."""


class FieldBox(NamedTuple):
    """values: that a step needs of a row. width: that are copied, from `start`; the step's begin at `offset`. unit:
    values of 16 bytes. total: in a row. is_whole: the copy has all rows of a tile, [total, 64] values as they lie in
    memory. steps: that have the same values."""

    name: str
    dtype: str
    values: int
    width: int
    unit: int
    total: int
    is_whole: bool
    steps: int = 1

    @property
    def num_bytes(self) -> int:
        """Of a tile."""
        return COLUMNS * self.width * jnp.dtype(self.dtype).itemsize

    def start(self, step: jax.Array) -> jax.Array:
        if self.is_whole:
            return jnp.int32(0)
        begin = self.first(step)
        if self.values % self.unit == 0:
            return begin
        return jnp.minimum(begin // self.unit * self.unit, self.total - self.width)

    @property
    def alignment(self) -> int:
        """Of which all starts are multiples."""
        return math.gcd(self.values, self.total) if self.values % self.unit == 0 else self.unit

    def offset(self, step: jax.Array) -> jax.Array:
        return self.first(step) - self.start(step)

    @property
    def whole_copies(self) -> tuple[tuple[int, int], ...]:
        """First line and number of lines of each copy that brings the whole field of a tile."""
        return tuple((i, min(MAX_COPIED, self.total - i)) for i in range(0, self.total, MAX_COPIED))

    @property
    def vector(self) -> int:
        """Values that a thread loads at once: no load crosses 16 bytes."""
        return math.gcd(self.values, self.unit, self.total)

    def first(self, step: jax.Array) -> jax.Array:
        """The number of a step's first value in a row."""
        if self.total == self.values:
            return jnp.int32(0)
        return step_start(lax.div(step, jnp.int32(self.steps)) if self.steps > 1 else step, self.values, self.total)


def field_boxes(form: BlockForm, num_inputs: int, inputs: int) -> tuple[FieldBox, ...]:
    """For steps of so many inputs. Raises NotImplementedError where no copy has what a step needs."""
    boxes: list[FieldBox] = []
    for field in form.fields:
        total = field.count * num_inputs // form.block_len
        values, steps = _values_of(form, field, total, inputs)
        itemsize = jnp.dtype(field.dtype).itemsize
        unit = COPIED_BYTES // itemsize
        if total * itemsize % COPIED_BYTES:
            if total > MAX_COPIED and total * itemsize > MAX_WHOLE_BYTES:
                raise NotImplementedError(
                    f"{form.name} has rows of {total * itemsize} bytes of {field.name}, no multiple of {COPIED_BYTES}, "
                    f"nor at most {MAX_COPIED} numbers or {MAX_WHOLE_BYTES} bytes"
                )
            boxes.append(FieldBox(field.name, field.dtype, values, total, unit, total, is_whole=True, steps=steps))
            continue
        width = values
        if values % unit:  # a part of 16 bytes, or what may lie in two or more of them
            width = unit if unit % values == 0 else -(-values // unit) * unit + unit
        width = min(width, total)
        boxes.append(FieldBox(field.name, field.dtype, values, width, unit, total, is_whole=False, steps=steps))
    return tuple(boxes)


def _values_of(form: BlockForm, field: Field, total: int, inputs: int) -> tuple[int, int]:
    """How many values a step has, and how many steps have the same."""
    if field.name == "outer_scales" and num_parted_runs(form):  # any step of a block may need any of them
        if total > field.count and form.block_len % inputs:
            raise NotImplementedError(f"{form.name} has blocks of {form.block_len}, parts of steps of {inputs}")
        return field.count, -(-form.block_len // inputs)
    values, rest = divmod(field.count * inputs, form.block_len)
    if not rest:
        return values, 1
    span, uneven = divmod(form.block_len, field.count)
    if uneven or (span % inputs and total > 1):
        raise NotImplementedError(
            f"{form.name} has {field.name} of {form.block_len} / {field.count} inputs, which steps of {inputs} divide"
        )
    return 1, -(-span // inputs)
