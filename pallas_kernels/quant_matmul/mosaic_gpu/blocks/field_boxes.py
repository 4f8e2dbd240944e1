"""Device: `FieldBox`: the part of a field of blocks that a step's copy has. Copies (TMA) begin and end at 16 bytes."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pallas_kernels.block_forms.block_form import BlockForm

COPIED_BYTES = 16


class FieldBox(NamedTuple):
    """values: that a step needs of a row. width: that are copied, from `start`; the step's begin at `offset`. unit:
    values of 16 bytes. total: in a row."""

    name: str
    dtype: str
    values: int
    width: int
    unit: int
    total: int

    def start(self, step: jax.Array) -> jax.Array:
        begin = step * self.values
        if self.values % self.unit == 0:
            return begin
        return jnp.minimum(begin // self.unit * self.unit, self.total - self.width)

    def offset(self, step: jax.Array) -> jax.Array:
        return step * self.values - self.start(step)

    @property
    def vector(self) -> int:
        """Values that a thread loads at once: no load crosses 16 bytes."""
        return math.gcd(self.values, self.unit)


def field_boxes(form: BlockForm, num_inputs: int, inputs: int) -> tuple[FieldBox, ...]:
    """For steps of so many inputs. Raises NotImplementedError where copies cannot begin at each row."""
    boxes: list[FieldBox] = []
    for field in form.fields:
        values, total = field.count * inputs // form.block_len, field.count * num_inputs // form.block_len
        itemsize = jnp.dtype(field.dtype).itemsize
        if total * itemsize % COPIED_BYTES:
            raise NotImplementedError(
                f"{form.name} has rows of {total * itemsize} bytes of {field.name}, no multiple of {COPIED_BYTES}"
            )
        unit = COPIED_BYTES // itemsize
        width = values
        if values % unit:  # a part of 16 bytes, or what may lie in two or more of them
            width = unit if unit % values == 0 else -(-values // unit) * unit + unit
        boxes.append(FieldBox(field.name, field.dtype, values, min(width, total), unit, total))
    return tuple(boxes)
