"""Device: `table_form` and `nested_form`: blocks of codes of 4 bits that stand for the values of a table, such as NF4
and FP4 of bitsandbytes (Dettmers et al., QLoRA, arXiv 2305.14314, section 3).

With double quantization a block's scale is a code, too:    scale = table[code] · outer scale of its run + offset

A run of scales has one outer scale. Runs follow each other through a whole matrix, so that a row may begin within one:

    scales           . . . . . . . . . . . . . . . . . . . .
    rows                   [ . . . . . . . . . ][ . . . .
    runs             [ . . . . . . ][ . . . . . . ][ . . .
    run_starts = 3   └───┘ of the row's first run, the scales that lie before the row
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Scales
from pallas_kernels.block_forms.int_forms import int_form

BITS = 4
SCALE_DTYPES = ("float32", "bfloat16", "float16")
"""Of scales that are numbers: a file's, and those to which products on a GPU round them."""
RUN_STARTS = "run_starts"
MAX_PARTED_RUNS = 8
"""Of a block: kernels compare with each. With runs of 256 scales and groups of 64 rows have up to 114,000 inputs."""
Table = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NestedScales:
    """How scales are computed that are codes, of these values. plain: the form whose scales are numbers. run_len:
    scales that have an outer one in common."""

    values: Table
    plain: BlockForm
    run_len: int

    def __call__(self, fields: Fields, real: Any) -> Scales:
        codes, offsets = fields["scale_codes"], fields["scale_offsets"]
        found = jnp.asarray(self.values, real).at[codes.astype(jnp.int32)].get(mode="promise_in_bounds")
        found = found.reshape(*offsets.shape, -1)
        outer = fields["outer_scales"].astype(real).reshape(*offsets.shape, -1)
        if RUN_STARTS in fields:
            places = lax.broadcasted_iota(jnp.int32, found.shape, found.ndim - 1) + fields[RUN_STARTS][..., None]
            runs = [outer[..., i : i + 1] for i in range(outer.shape[-1])]
            found = found * self.of_places(places, runs)
        else:
            by_run = found.reshape(*outer.shape, self.run_len)
            found = (by_run * outer[..., None]).reshape(found.shape)
        return Scales((found + offsets.astype(real)[..., None]).reshape(codes.shape))

    def of_places(self, places: jax.Array, runs: Sequence[jax.Array]) -> jax.Array:
        """The outer scale of each scale. places: in the runs that a block has, from the start of the first one."""
        found = runs[0]
        for number, own in enumerate(runs[1:], 1):
            found = jnp.where(places >= number * self.run_len, own, found)
        return found


def table_form(name: str, values: Table, group_len: int) -> BlockForm | None:
    """values: of the codes. None: the codes of a group do not fill whole bytes."""
    plain = int_form(BITS, group_len, "float32", has_zeros=False)
    return plain and replace(plain, name=f"{name}-g{group_len}", zero=0, values=values)


def nested_form(plain: BlockForm, scales: Table, run_len: int, block_len: int, num_runs: int = 0) -> BlockForm:
    """The same with scales that are codes of the values `scales`, an offset for a block, such as a row, and an outer
    scale for `run_len` scales: whole runs of a block, or `num_runs` that it may have parts of."""
    (_, codes), (plane,) = plain.fields, plain.planes
    num_groups = block_len // plain.group_len
    fields = (
        Field("scale_codes", "uint8", num_groups),
        Field("outer_scales", "float32", num_runs or num_groups // run_len),
        *((Field(RUN_STARTS, "int32", 1),) if num_runs else ()),
        Field("scale_offsets", "float32", 1),
        replace(codes, count=num_groups * codes.count),
    )
    name, nested = f"{plain.name} nested", NestedScales(scales, plain, run_len)
    return replace(plain, name=name, block_len=block_len, fields=fields, planes=(plane,), scales=nested)


def row_form(plain: BlockForm, scales: Table, run_len: int, num_inputs: int) -> BlockForm:
    """The smaller `nested_form` of rows, which follow each other, as blocks."""
    num_groups = num_inputs // plain.group_len
    in_common = math.gcd(num_groups, run_len)  # scales of a row that are in one run, wherever the row begins
    num_runs = -(-(run_len - in_common + num_groups) // run_len)
    if num_groups // in_common <= num_runs + 1 or num_runs > MAX_PARTED_RUNS:
        return nested_form(plain, scales, in_common, num_inputs)
    return nested_form(plain, scales, run_len, num_inputs, num_runs)


def num_parted_runs(form: BlockForm) -> int:
    """Of a `nested_form` whose blocks may have parts of runs; else 0."""
    counts = {field.name: field.count for field in form.fields}
    return counts["outer_scales"] if RUN_STARTS in counts else 0


def in_shares(form: BlockForm, num_inputs: int) -> BlockForm:
    """A `nested_form` with blocks that divide shares of so many inputs, which devices have of a row. Itself where its
    blocks do, or shares have parts of groups. Where runs are parted each share has all of its row."""
    nested, block_len = form.scales, math.gcd(form.block_len, num_inputs)
    if not isinstance(nested, NestedScales) or block_len == form.block_len or block_len % form.group_len:
        return form
    if num_runs := num_parted_runs(form):
        return nested_form(nested.plain, nested.values, nested.run_len, block_len, num_runs)
    in_common = math.gcd(nested.run_len, block_len // form.group_len)
    return nested_form(nested.plain, nested.values, in_common, block_len)


def shares_of(xp: Any, form: BlockForm, fields: Fields) -> dict[str, Any]:
    """Outer scales and offsets of the blocks of an `in_shares`, of those of longer blocks: what these have in common
    each share has. xp: numpy or jax.numpy."""
    nested, num_groups = form.scales, form.block_len // form.group_len
    assert isinstance(nested, NestedScales)
    codes, offsets = fields["scale_codes"], fields["scale_offsets"]
    num_shares = codes.shape[-1] // num_groups // offsets.shape[-1]
    if num_shares == 1:
        return {}
    found, outer = {"scale_offsets": xp.repeat(offsets, num_shares, axis=-1)}, fields["outer_scales"]
    if not (num_runs := num_parted_runs(form)):
        count = codes.shape[-1] // nested.run_len // outer.shape[-1]
        return found | {"outer_scales": xp.repeat(outer, count, axis=-1)}
    blocks = xp.repeat(outer.reshape(*offsets.shape, num_runs), num_shares, axis=-2)
    starts = xp.repeat(fields[RUN_STARTS], num_shares, axis=-1)
    before = xp.tile(xp.arange(num_shares, dtype=xp.int32) * num_groups, offsets.shape[-1])
    found["outer_scales"] = blocks.reshape(*outer.shape[:-1], -1)
    return found | {RUN_STARTS: starts + xp.broadcast_to(before, starts.shape)}


def without_nesting(form: BlockForm, dtype: str = "float32") -> BlockForm:
    """The form of the same codes whose scales are numbers of this dtype."""
    return with_scales(form.scales.plain, dtype) if isinstance(form.scales, NestedScales) else form


def with_scales(form: BlockForm, dtype: str) -> BlockForm:
    """A table's form with scales of another dtype."""
    fields = (replace(field, dtype=dtype) if field.name == "scales" else field for field in form.fields)
    return replace(form, fields=tuple(fields))
