"""Device: `float_form`: blocks of floats of 8 bits, one block for each scale (FP8: Micikevicius et al., arXiv
2209.05433)."""

from typing import Any

from pallas_kernels.block_forms.block_form import BlockForm, Field, Fields, Plane, Scales

NAMES = {"float8_e4m3fn": "FP8", "float8_e5m2": "FP8-E5M2"}
"""Of forms, by the dtype of codes."""


def float_form(codes: str, group_len: int, scales: str) -> BlockForm:
    """codes, scales: their dtypes; a code is the number that it is multiplied as."""
    fields = Field("scales", scales, 1), Field("codes", codes, group_len)
    plane = Plane("codes", 8, group_len)
    return BlockForm(f"{NAMES[codes]}-g{group_len}", group_len, fields, (plane,), group_len, _plain)


def _plain(fields: Fields, real: Any) -> Scales:
    return Scales(fields["scales"].astype(real))
