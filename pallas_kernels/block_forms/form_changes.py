"""Device: the fields of blocks as devices of every kind have them, from those of a file, and back.

`saved_form` is what does not depend on the device: float16 as such, Q5_0 and Q5_1 in blocks of 32, a byte for each zero
point. Of double quantization it does: scales that a device has as numbers (a GPU as its products would round them) stay
such, since their codes are gone; and blocks that are shares of rows stay so.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from pallas_kernels.block_forms.block_form import BlockForm, Fields
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import without_half_bits
from pallas_kernels.block_forms.packed_zeros import PackedZeros, packed_zeros, without_packed_zeros
from pallas_kernels.block_forms.table_forms import NestedScales, shares_of
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS, file_planes, wide_planes


def saved_form(form: BlockForm) -> BlockForm:
    """The form in which blocks are saved that a device has in this one."""
    form = without_packed_zeros(without_half_bits(form))
    return GGML_FORMS[form.name] if _is_wide(form) else form


def saved_fields(form: BlockForm, fields: Fields) -> dict[str, Any]:
    """The fields of `saved_form(form)`."""
    found, plain = dict(fields), without_half_bits(form)
    if _is_wide(plain):
        found |= file_planes(jnp, found)
    if isinstance(plain.scales, PackedZeros):
        found["zeros"] = plain.scales.zeros(found)
    return _of(saved_form(form), found)


def device_fields(saved: BlockForm, fields: Fields, form: BlockForm) -> dict[str, Any]:
    """The fields of a device's form. saved: the form of `fields`, for which the device has this one."""
    found, plain = dict(fields), without_half_bits(form)
    if _is_wide(plain) and not _is_wide(saved):
        found |= wide_planes(jnp, found)
    if isinstance(plain.scales, PackedZeros):
        found |= packed_zeros(jnp, saved, found)
    if isinstance(saved.scales, NestedScales) and not isinstance(plain.scales, NestedScales):
        (dtype,) = (field.dtype for field in plain.fields if field.name == "scales")
        found["scales"] = saved.scales(found, jnp.float32).scales.astype(dtype)
    elif isinstance(saved.scales, NestedScales):
        found |= shares_of(jnp, plain, found)
    return _of(form, found)


def _is_wide(form: BlockForm) -> bool:
    return WIDE_FORMS.get(form.name) == form


def _of(form: BlockForm, fields: Fields) -> dict[str, Any]:
    """Those that the form has, in its dtypes: numbers of 16 bits, or their bits."""
    return {field.name: _with_dtype(fields[field.name], field.dtype) for field in form.fields}


def _with_dtype(values: Any, dtype: str) -> Any:
    return values if values.dtype == jnp.dtype(dtype) else lax.bitcast_convert_type(values, jnp.dtype(dtype))
