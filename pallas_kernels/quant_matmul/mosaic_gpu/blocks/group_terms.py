"""Device: `GroupTerms`: what a group's codes are multiplied by, and what is subtracted and added, in the kernel.

w = (code - zero) · scale + offset        code: less half of its range, so zeros and offsets are small
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Num

from pallas_kernels.block_forms.block_form import BlockForm, Scales
from pallas_kernels.block_forms.ggml_forms import six_bits
from pallas_kernels.block_forms.packed_zeros import PackedZeros
from pallas_kernels.block_forms.table_forms import RUN_STARTS, NestedScales
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import shared_values

F32 = jnp.float32


class GroupTerms(NamedTuple):
    """[64, groups of a step], in the dtype of the inputs."""

    scales: jax.Array
    zeros: jax.Array | None
    offsets: jax.Array | None


def centre(form: BlockForm) -> int:
    """What codes are decoded less of; 0 of signed ones, floats, and those of a table."""
    if form.values:
        return 0
    return 2 ** (sum(plane.bits for plane in form.planes) - 1) if code_dtype(form) == "uint8" else 0


def code_dtype(form: BlockForm) -> str:
    """Of the first plane."""
    (dtype,) = (field.dtype for field in form.fields if field.name == form.planes[0].field)
    return dtype


def group_terms(
    form: BlockForm,
    fields: dict[str, Num[Array, "64 n"]],
    dtype: Any,
    scale_values: Ref | None = None,
    first_scale: Scalar = 0,
) -> GroupTerms:
    """Of the groups of a step, computed in float32 and rounded once. fields: a step's, `per_row(1)`. scale_values: in
    shared memory, of the codes of scales, the first of which has this number in its block."""
    scales, offsets, zeros = _scales(form, fields, scale_values, first_scale)
    if zeros is not None:
        zeros = (zeros - float(centre(form))).astype(dtype)
    elif centre(form) != form.zero:
        added = scales * float(centre(form) - form.zero)
        offsets = added if offsets is None else offsets + added
    return GroupTerms(scales.astype(dtype), zeros, None if offsets is None else offsets.astype(dtype))


def _scales(form: BlockForm, fields: dict[str, jax.Array], scale_values: Ref | None, first_scale: Scalar) -> Scales:
    if scale_values is not None:
        return _nested(form, fields, scale_values, first_scale)
    if "block_scales" in fields:
        return _of_block(fields)
    if not isinstance(form.scales, PackedZeros):
        return form.scales(fields, F32)
    places = form.scales.places(fields["packed_zeros"].astype(jnp.int32))
    columns = [place[:, i : i + 1] for i in range(places[0].shape[1]) for place in places]
    return Scales(fields["scales"].astype(F32), zeros=jnp.concatenate(columns, axis=1).astype(F32))


def _of_block(fields: dict[str, jax.Array]) -> Scales:
    """As `ggml_forms` computes them of blocks of 256, for one block and by slices alone."""
    block_scales, groups = fields["block_scales"].astype(F32), fields["group_scales"].astype(jnp.int32)
    if "block_minima" not in fields:
        return Scales(_times(block_scales, groups))
    parts = six_bits(*(groups[:, i : i + 4] for i in (0, 4, 8)))
    scales, minima = (jnp.concatenate(part, axis=1) for part in parts)
    return Scales(_times(block_scales, scales), -_times(fields["block_minima"].astype(F32), minima))


def _nested(form: BlockForm, fields: dict[str, jax.Array], scale_values: Ref, first_scale: Scalar) -> Scales:
    """As `table_forms` computes them of codes, by slices alone."""
    assert isinstance(form.scales, NestedScales)
    values, outer = shared_values(scale_values, fields["scale_codes"]), fields["outer_scales"]
    num_groups = values.shape[1]
    if RUN_STARTS in fields:
        first = fields[RUN_STARTS] + first_scale
        runs = [outer[:, i : i + 1] for i in range(outer.shape[1])]
        outer = jnp.concatenate([form.scales.of_places(first + i, runs) for i in range(num_groups)], axis=1)
    return Scales(values * _of_groups(outer, num_groups) + _of_groups(fields["scale_offsets"], num_groups))


def _of_groups(runs: jax.Array, num_groups: int) -> jax.Array:
    """Each column as often as all make those of the groups."""
    count = num_groups // runs.shape[1]
    columns = [runs[:, i : i + 1] for i in range(runs.shape[1]) for _ in range(count)]
    return jnp.concatenate(columns, axis=1) if len(columns) > 1 else runs


def _times(of_block: jax.Array, of_groups: jax.Array) -> jax.Array:
    return jnp.concatenate([of_block] * of_groups.shape[1], axis=1) * of_groups.astype(F32)
