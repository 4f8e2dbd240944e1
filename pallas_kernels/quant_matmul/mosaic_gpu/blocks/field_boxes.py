"""Device: `FieldBox`: the part of a field of blocks that a step's copy has. Copies (TMA) begin and end at 16 bytes. Of
a field whose rows do not, such as a number for each 256 inputs of 7168, a tile's rows are copied whole, once.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.matmul.mosaic_gpu.kernel_sizes import COLUMNS
from pallas_kernels.quant_matmul.last_step import step_start

COPIED_BYTES = 16
MAX_COPIED = 256
"""Along an axis."""


class FieldBox(NamedTuple):
    """values: that a step needs of a row. width: that are copied, from `start`; the step's begin at `offset`. unit:
    values of 16 bytes. total: in a row. is_whole: the copy has all rows of a tile, [total, 64] values as they lie in
    memory."""

    name: str
    dtype: str
    values: int
    width: int
    unit: int
    total: int
    is_whole: bool

    @property
    def num_bytes(self) -> int:
        """Of a tile."""
        return COLUMNS * self.width * jnp.dtype(self.dtype).itemsize

    def start(self, step: jax.Array) -> jax.Array:
        if self.is_whole:
            return jnp.int32(0)
        begin = step_start(step, self.values, self.total)
        if self.values % self.unit == 0:
            return begin
        return jnp.minimum(begin // self.unit * self.unit, self.total - self.width)

    @property
    def alignment(self) -> int:
        """Of which all starts are multiples."""
        return math.gcd(self.values, self.total) if self.values % self.unit == 0 else self.unit

    def offset(self, step: jax.Array) -> jax.Array:
        return step_start(step, self.values, self.total) - self.start(step)

    @property
    def vector(self) -> int:
        """Values that a thread loads at once: no load crosses 16 bytes."""
        return math.gcd(self.values, self.unit, self.total)


def field_boxes(form: BlockForm, num_inputs: int, inputs: int) -> tuple[FieldBox, ...]:
    """For steps of so many inputs. Raises NotImplementedError where no copy has what a step needs."""
    boxes: list[FieldBox] = []
    for field in form.fields:
        values, total = field.count * inputs // form.block_len, field.count * num_inputs // form.block_len
        itemsize = jnp.dtype(field.dtype).itemsize
        unit = COPIED_BYTES // itemsize
        if total * itemsize % COPIED_BYTES:
            if total > MAX_COPIED:
                raise NotImplementedError(
                    f"{form.name} has rows of {total * itemsize} bytes of {field.name}, no multiple of {COPIED_BYTES}, "
                    f"nor at most {MAX_COPIED} numbers"
                )
            boxes.append(FieldBox(field.name, field.dtype, values, total, unit, total, is_whole=True))
            continue
        width = values
        if values % unit:  # a part of 16 bytes, or what may lie in two or more of them
            width = unit if unit % values == 0 else -(-values // unit) * unit + unit
        boxes.append(FieldBox(field.name, field.dtype, values, min(width, total), unit, total, is_whole=False))
    return tuple(boxes)
