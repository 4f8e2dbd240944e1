"""Device: `int_form`: blocks of integers of 2 to 8 bits, one block for each scale, as GPTQ, AWQ and compressed-tensors
quantize to."""

from typing import Any

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Plane, Scales

PLANE_BITS = (4, 2, 1)
"""A code of 7 bits lies in three planes."""


def int_form(bits: int, group_len: int, scales: str, has_zeros: bool) -> BlockForm | None:
    """The form of codes from 0 to 2^bits - 1, of which half stands for 0, or with zeros a number for each group.

    scales: their dtype. None: the codes of a group do not fill whole bytes.
    """
    parts = [8] if bits == 8 else [part for part in PLANE_BITS if bits & part]
    if any(group_len * part % 8 for part in parts):
        return None
    fields = [Field("scales", scales, 1), *([Field("zeros", "uint8", 1)] if has_zeros else [])]
    planes = [Plane(f"bits_{part}", part, group_len * part // 8) for part in parts]
    fields += [Field(plane.field, "uint8", plane.run) for plane in planes]
    zero = 0 if has_zeros else 2 ** (bits - 1)
    name = f"INT{bits}-g{group_len}"
    return BlockForm(
        name, group_len, tuple(fields), tuple(planes), group_len, _with_zeros if has_zeros else _symmetric, zero
    )


def _symmetric(fields: Fields, real: Any) -> Scales:
    return Scales(fields["scales"].astype(real))


def _with_zeros(fields: Fields, real: Any) -> Scales:
    return Scales(fields["scales"].astype(real), zeros=fields["zeros"].astype(real))
