"""Device: zero points of groups in as many bits as files have them, several in a byte, as devices keep them.

    zeros           a byte for each group: as weights are saved, and where it adds little to the group's bytes
    packed_zeros    of 4 bits: byte j has those of groups 2j (the lowest bits) and 2j + 1; of 2 bits: of groups 4j to
                    4j + 3

Blocks then have as many groups as a byte has zero points.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Scales

MAX_ADDED = 0.015
"""By a byte in place of a zero point's bits, as a share of a group's bytes: 0.027 of 4 bits in groups of 32, 0.0145 of
64."""
PACKED = Field("packed_zeros", "uint8", 1)


@dataclass(frozen=True, slots=True)
class PackedZeros:
    """How scales are computed of groups whose zero points are packed. plain: the form with a byte for each."""

    plain: BlockForm

    def __call__(self, fields: Fields, real: Any) -> Scales:
        return self.plain.scales({**fields, "zeros": self.zeros(fields)}, real)

    def zeros(self, fields: Fields) -> Any:
        """A byte for each, [*out, groups]."""
        zeros = jnp.stack(self.places(fields[PACKED.name]), axis=-1)
        return zeros.reshape(*zeros.shape[:-2], -1)

    def places(self, packed: Any) -> list[Any]:
        """The zero points [*out, bytes] at each place of the bytes, the lowest bits first."""
        bits = _zero_bits(self.plain)
        mask = packed.dtype.type(2**bits - 1)
        return [(packed >> packed.dtype.type(shift)) & mask for shift in range(0, 8, bits)]


def with_packed_zeros(form: BlockForm, num_inputs: int) -> BlockForm:
    """The form that devices have in its place; itself, where zero points have no fewer bits, a byte adds little, or
    rows of so many inputs are no whole blocks."""
    if not _saves_memory(form) or num_inputs % (_per_byte(form) * form.group_len):
        return form
    count = _per_byte(form)
    fields = tuple(
        PACKED if field.name == "zeros" else replace(field, count=field.count * count) for field in form.fields
    )
    return replace(form, block_len=form.block_len * count, fields=fields, scales=PackedZeros(form))


def without_packed_zeros(form: BlockForm) -> BlockForm:
    """The form with a byte for each zero point."""
    return form.scales.plain if isinstance(form.scales, PackedZeros) else form


def packed_zeros(xp: Any, form: BlockForm, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The field that only the packed form has, [*out, blocks], from those of a form with a byte for each; none, where
    rows have no packed form. xp: numpy or jax.numpy, of which the arrays are."""
    if not _saves_memory(form) or fields["zeros"].shape[-1] % _per_byte(form):
        return {}
    zeros = fields["zeros"].reshape(*fields["zeros"].shape[:-1], -1, _per_byte(form))
    packed = zeros[..., 0]
    for place in range(1, _per_byte(form)):
        packed = packed | (zeros[..., place] << xp.uint8(place * _zero_bits(form)))
    return {PACKED.name: packed}


def _saves_memory(form: BlockForm) -> bool:
    """Whether its packed form is kept in place of one with a byte for each zero point."""
    if all(field.name != "zeros" for field in form.fields):
        return False
    added = 1 - 1 / _per_byte(form)
    return added > MAX_ADDED * (form.block_bytes - added)


def _per_byte(form: BlockForm) -> int:
    return 8 // _zero_bits(form)


def _zero_bits(form: BlockForm) -> int:
    """Those of a code, of 2, 4 or 8."""
    code_bits = sum(plane.bits for plane in form.planes)
    return next(bits for bits in (2, 4, 8) if bits >= code_bits)
