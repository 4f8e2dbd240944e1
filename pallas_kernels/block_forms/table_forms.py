"""Device: `table_form` and `nested_form`: blocks of codes of 4 bits that stand for the values of a table, such as NF4
and FP4 of bitsandbytes (Dettmers et al., QLoRA, arXiv 2305.14314, section 3).

With double quantization a block's scale is a code, too:    scale = table[code] · outer scale of some blocks + offset
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Scales
from pallas_kernels.block_forms.int_forms import int_form

BITS = 4
SCALE_DTYPES = ("float32", "bfloat16", "float16")
"""Of scales that are numbers: a file's, and those to which products on a GPU round them."""
Table = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NestedScales:
    """How scales are computed that are codes, of these values. plain: the form whose scales are numbers."""

    values: Table
    plain: BlockForm

    def __call__(self, fields: Fields, real: Any) -> Scales:
        codes, outer, offsets = fields["scale_codes"], fields["outer_scales"], fields["scale_offsets"]
        found = jnp.asarray(self.values, real).at[codes.astype(jnp.int32)].get(mode="promise_in_bounds")
        for own, term in (outer, jnp.multiply), (offsets, jnp.add):
            runs = found.reshape(*own.shape, -1)
            found = term(runs, own.astype(real)[..., None]).reshape(codes.shape)
        return Scales(found)


def table_form(name: str, values: Table, group_len: int) -> BlockForm | None:
    """values: of the codes. None: the codes of a group do not fill whole bytes."""
    plain = int_form(BITS, group_len, "float32", has_zeros=False)
    return plain and replace(plain, name=f"{name}-g{group_len}", zero=0, values=values)


def nested_form(plain: BlockForm, scales: Table, outer_len: int, num_inputs: int) -> BlockForm:
    """The same with scales that are codes of the values `scales`, an outer one for `outer_len` of them, and an offset
    for a row of `num_inputs`, which is one block."""
    (_, codes), (plane,) = plain.fields, plain.planes
    num_groups = num_inputs // plain.group_len
    fields = (
        Field("scale_codes", "uint8", num_groups),
        Field("outer_scales", "float32", num_groups // outer_len),
        Field("scale_offsets", "float32", 1),
        replace(codes, count=num_groups * codes.count),
    )
    name = f"{plain.name} nested"
    return replace(
        plain, name=name, block_len=num_inputs, fields=fields, planes=(plane,), scales=NestedScales(scales, plain)
    )


def outer_len(form: BlockForm) -> int:
    """Scales that have an outer one in common."""
    counts = {field.name: field.count for field in form.fields}
    return counts["scale_codes"] // counts["outer_scales"]


def in_shares(form: BlockForm, num_inputs: int) -> BlockForm:
    """A `nested_form` with blocks that divide shares of so many inputs, which devices have of a row: outer scales and
    offsets are then repeated. Itself where its blocks do, or shares have parts of groups."""
    block_len = math.gcd(form.block_len, num_inputs)
    if not isinstance(form.scales, NestedScales) or block_len == form.block_len or block_len % form.group_len:
        return form
    in_common = math.gcd(outer_len(form), block_len // form.group_len)
    return nested_form(form.scales.plain, form.scales.values, in_common, block_len)


def without_nesting(form: BlockForm, dtype: str = "float32") -> BlockForm:
    """The form of the same codes whose scales are numbers of this dtype."""
    return with_scales(form.scales.plain, dtype) if isinstance(form.scales, NestedScales) else form


def with_scales(form: BlockForm, dtype: str) -> BlockForm:
    """A table's form with scales of another dtype."""
    fields = (replace(field, dtype=dtype) if field.name == "scales" else field for field in form.fields)
    return replace(form, fields=tuple(fields))
