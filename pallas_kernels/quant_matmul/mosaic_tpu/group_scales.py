"""Device: the scales of a tile's groups, computed into vector memory before the tile's codes are decoded.

    weight = code · scale + offset        code: less the kernel's own zero, which the offset makes up for

Scratch is by columns of 128 outputs, because a TPU loads and stores with a stride of sublanes only in arrays that are
128 lanes wide.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Shaped

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.ggml_forms import six_bits
from pallas_kernels.block_forms.half_bits import without_half_bits
from pallas_kernels.block_forms.looked_up import looked_up
from pallas_kernels.block_forms.packed_zeros import PackedZeros
from pallas_kernels.block_forms.table_forms import RUN_STARTS, NestedScales
from pallas_kernels.kernel_types import Ref, Refs
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.quant_matmul.mosaic_tpu.half_floats import from_bits

OFFSETS = {"minima", "block_minima", "zeros", "packed_zeros"}
"""Fields by which groups have offsets."""
PACKED = {"block_scales", "block_minima", "group_scales"}
"""The fields of Q4_K and Q5_K: scales and minima of 6 bits, of 8 groups in 12 bytes."""
PACKED_BYTES = 12
OF_BLOCKS = {"block_scales", "group_scales"}
"""Those of Q6_K."""
NESTED = {"scale_codes", "outer_scales", "scale_offsets"}
PARTED = NESTED | {RUN_STARTS}
"""Those of double quantization, and with runs of which rows have parts."""
ZEROS = {"scales", "packed_zeros"}
"""Those of groups whose zero points are packed."""


@dataclass(frozen=True)
class GroupScales:
    """Scratch [columns, groups, 128]. offsets: None: groups have none."""

    scales: Ref
    offsets: Ref | None


def scale_fields(form: BlockForm) -> set[str]:
    """All that are not planes of codes."""
    return {field.name for field in form.fields} - {plane.field for plane in form.planes}


def has_offsets(form: BlockForm) -> bool:
    return bool(scale_fields(form) & OFFSETS)


def check_scales(form: BlockForm) -> None:
    """Raises NotImplementedError for scales that the kernel does not compute."""
    halves = [field.name for field in form.fields if field.dtype == "float16"]
    if halves:
        raise NotImplementedError(f"it reads no float16 ({', '.join(halves)}), but their bits (`with_half_bits`)")
    if not (_is_plain(form) or scale_fields(form) in (PACKED, OF_BLOCKS, NESTED, PARTED, ZEROS)):
        raise NotImplementedError(f"it does not compute the scales of {form.name}")


def scratch(form: BlockForm, num_groups: int, outputs: int) -> dict[str, Any]:
    """By name; "packed" are integers that are read with a stride."""
    columns = outputs // NUM_LANES
    found = {"scales": pltpu.VMEM((columns, num_groups, NUM_LANES), jnp.float32)}
    if has_offsets(form):
        found["offsets"] = pltpu.VMEM((columns, num_groups, NUM_LANES), jnp.float32)
    if scale_fields(form) == PACKED:
        num_bytes = num_groups * form.group_len // form.block_len * PACKED_BYTES
        found["packed"] = pltpu.VMEM((columns, num_bytes, NUM_LANES), jnp.int32)
    return found


def compute(form: BlockForm, fields: Refs, memory: Refs, zero: int) -> None:
    """Fills the scratch. fields: [1, 1, blocks · count, outputs]. zero: by which the kernel's codes are less."""
    scales, offsets = memory["scales"], memory.get("offsets")
    for column in range(scales.shape[0]):
        own = {name: fields[name].at[0, 0, :, pl.ds(column * NUM_LANES, NUM_LANES)] for name in scale_fields(form)}
        kept = GroupScales(scales.at[column], None if offsets is None else offsets.at[column])
        if _is_plain(form):
            _plain(form, own, kept, zero)
        elif isinstance(form.scales, NestedScales):
            _nested(form.scales, own, kept)
        elif isinstance(packed := without_half_bits(form).scales, PackedZeros):
            _with_zeros(packed, own, kept, zero)
        elif offsets is None:
            _of_blocks(own, kept)
        else:
            _of_six_bits(own, kept, memory["packed"].at[column], zero)


def _is_plain(form: BlockForm) -> bool:
    """Whether each scale is a number of its own."""
    names = scale_fields(form)
    return all(field.count * form.group_len == form.block_len for field in form.fields if field.name in names)


def _plain(form: BlockForm, fields: Refs, kept: GroupScales, zero: int) -> None:
    values = {name: real(field[...]) for name, field in fields.items()}
    found = without_half_bits(form).scales(values, jnp.float32)
    kept.scales[...] = found.scales
    if kept.offsets is not None:
        zeros = form.zero if found.zeros is None else found.zeros
        offsets = found.scales * (zero - zeros)
        kept.offsets[...] = offsets if found.offsets is None else offsets + found.offsets


def _nested(nested: NestedScales, fields: Refs, kept: GroupScales) -> None:
    codes, outer = fields["scale_codes"], fields["outer_scales"]
    kept.scales[...] = looked_up(codes[...].astype(jnp.int32), nested.values, jnp.float32)
    offsets = fields["scale_offsets"]
    if RUN_STARTS in fields:
        _of_parted_runs(nested, fields, kept)
        return
    count, of_block = codes.shape[0] // outer.shape[0], outer.shape[0] // offsets.shape[0]
    for i in range(outer.shape[0]):
        own = kept.scales.at[pl.ds(i * count, count)]
        own[...] = own[...] * outer[pl.ds(i, 1), :] + offsets[pl.ds(i // of_block, 1), :]


def _of_parted_runs(nested: NestedScales, fields: Refs, kept: GroupScales) -> None:
    outer, starts, offsets = (fields[name] for name in ("outer_scales", RUN_STARTS, "scale_offsets"))
    num_blocks = offsets.shape[0]
    num_groups, num_runs = kept.scales.shape[0] // num_blocks, outer.shape[0] // num_blocks
    for block in range(num_blocks):
        own, of_block = kept.scales.at[pl.ds(block * num_groups, num_groups)], pl.ds(block, 1)
        places = lax.broadcasted_iota(jnp.int32, own.shape, 0) + starts[of_block, :]
        runs = [outer[pl.ds(block * num_runs + i, 1), :] for i in range(num_runs)]
        own[...] = own[...] * nested.of_places(places, runs) + offsets[of_block, :]


def _with_zeros(packed: PackedZeros, fields: Refs, kept: GroupScales, zero: int) -> None:
    assert kept.offsets is not None
    kept.scales[...] = real(fields["scales"][...])
    places = packed.places(fields["packed_zeros"][...].astype(jnp.int32))
    for rows, zeros in zip(_each(len(places), len(places[0])), places, strict=True):
        kept.offsets[rows, :] = kept.scales[rows, :] * (zero - zeros.astype(jnp.float32))


def _of_blocks(fields: Refs, kept: GroupScales) -> None:
    blocks, groups = real(fields["block_scales"][...]), fields["group_scales"]
    kept.scales[...] = real(groups[...])
    for rows in _each(groups.shape[0] // len(blocks), len(blocks)):
        kept.scales[rows, :] = kept.scales[rows, :] * blocks


def _of_six_bits(fields: Refs, kept: GroupScales, packed: Ref, zero: int) -> None:
    """See `ggml_forms`."""
    scale, minimum = (real(fields[name][...]) for name in ("block_scales", "block_minima"))
    packed[...] = fields["group_scales"][...].astype(jnp.int32)
    of_bytes = [packed[rows, :] for rows in _each(PACKED_BYTES, len(scale))]
    decoded = [six_bits(*of_bytes[i::4]) for i in range(4)]
    groups = [(scales[half], minima[half]) for half in (0, 1) for scales, minima in decoded]
    assert kept.offsets is not None
    for rows, (own_scale, own_minimum) in zip(_each(8, len(scale)), groups, strict=True):
        found = scale * own_scale.astype(jnp.float32)
        kept.scales[rows, :] = found
        kept.offsets[rows, :] = found * float(zero) - minimum * own_minimum.astype(jnp.float32)


def _each(count: int, num_blocks: int) -> Iterator[Any]:
    """Of `count` rows for each block the first one of all blocks, the second one, …"""
    return (pl.ds(i, num_blocks, stride=count) for i in range(count))


def real(values: Shaped[Array, "n O"]) -> Float[Array, "n O"]:
    """As float32."""
    return from_bits(values) if values.dtype == jnp.uint16 else values.astype(jnp.float32)
