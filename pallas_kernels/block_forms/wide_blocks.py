"""Device: Q5_0 and Q5_1 as kernels read them: the same codes and scales, in blocks of 256 inputs with planes of Q5_K.

In files a byte has the fifth bits of 8 inputs in a row, and kernels read 16 or 32 bytes of a plane at once.

    nibbles       byte j of 32: inputs j and 32 + j, of 64
    fifth bits    byte j of 32: inputs j, 32 + j, …, 224 + j, of 256
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pallas_kernels.block_forms.block_form import BlockForm, Field, Plane
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS

BLOCK = 256
RUN = 32
_NIBBLES, _FIFTH_BITS = Field("nibbles_of_256", "uint8", BLOCK // 2), Field("fifth_bits_of_256", "uint8", RUN)


def _wide(form: BlockForm) -> BlockForm:
    scales = tuple(
        replace(field, count=BLOCK // form.block_len) for field in form.fields if field.name in ("scales", "minima")
    )
    planes = (Plane(_NIBBLES.name, 4, RUN), Plane(_FIFTH_BITS.name, 1, RUN))
    fields = (*scales, _FIFTH_BITS, _NIBBLES)
    return replace(form, block_len=BLOCK, fields=fields, planes=planes)


WIDE_FORMS = {name: _wide(GGML_FORMS[name]) for name in ("Q5_0", "Q5_1")}
"""By the names of the forms in files."""


def with_wide_blocks(form: BlockForm, num_inputs: int) -> BlockForm:
    """The form that kernels read in its place; itself, where they read that, or where rows of so many inputs are no
    whole blocks."""
    return form if num_inputs % BLOCK else WIDE_FORMS.get(form.name, form)


def wide_fields(name: str, fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The fields that only the wide form has, from those [rows, blocks · count] of the file's form `name`; none, if
    there is no wide form or rows are no whole blocks."""
    if name not in WIDE_FORMS or fields["nibbles"].shape[1] % _NIBBLES.count:
        return {}
    return wide_planes(np, fields)


def wide_planes(xp: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that only the wide form has, [*out, blocks · count]. fields: the file's; rows are whole blocks.
    xp: numpy or jax.numpy, of which the arrays are."""
    *out, _ = fields["nibbles"].shape
    nibbles = fields["nibbles"].reshape(*out, -1, 16)
    codes = xp.concatenate([nibbles & 15, nibbles >> 4], axis=-1).reshape(*out, -1, 2, RUN)
    bits = xp.unpackbits(fields["fifth_bits"], axis=-1, bitorder="little").reshape(*out, -1, BLOCK // RUN, RUN)
    wide = {
        _NIBBLES.name: codes[..., 0, :] | codes[..., 1, :] << 4,
        _FIFTH_BITS.name: xp.packbits(bits, axis=-2, bitorder="little"),
    }
    return {name: values.reshape(*out, -1) for name, values in wide.items()}


def file_planes(xp: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `wide_planes`: the fields that only the file's form has."""
    *out, _ = fields[_NIBBLES.name].shape
    wide, fifths = (fields[field.name].reshape(*out, -1, RUN) for field in (_NIBBLES, _FIFTH_BITS))
    codes = xp.stack([wide & 15, wide >> 4], axis=-2).reshape(*out, -1, 2, 16)
    bits = xp.swapaxes(xp.unpackbits(fifths[..., None], axis=-1, bitorder="little"), -1, -2)
    planes = {
        "nibbles": codes[..., 0, :] | codes[..., 1, :] << 4,
        "fifth_bits": xp.packbits(bits.reshape(*out, -1, 8), axis=-1, bitorder="little"),
    }
    return {name: values.reshape(*out, -1) for name, values in planes.items()}
