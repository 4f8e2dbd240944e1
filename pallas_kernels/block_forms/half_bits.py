"""Device: block forms whose float16 fields are kept as the bits of these numbers: Pallas kernels for TPU take no arrays
of float16, and XLA would copy a whole stack to make one of integers of it."""

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from pallas_kernels.block_forms.block_form import BlockForm, Fields, Scales


@dataclass(frozen=True, slots=True)
class FromHalfBits:
    """How scales of a form are computed from fields that are kept as bits."""

    form: BlockForm

    def __call__(self, fields: Fields, real: Any) -> Scales:
        halves = {field.name for field in self.form.fields if field.dtype == "float16"}
        return self.form.scales(
            {
                name: lax.bitcast_convert_type(values, jnp.float16) if name in halves else values
                for name, values in fields.items()
            },
            real,
        )


def with_half_bits(form: BlockForm) -> BlockForm:
    """The same bytes with uint16 in place of float16."""
    if all(field.dtype != "float16" for field in form.fields):
        return form
    fields = tuple(replace(field, dtype="uint16") if field.dtype == "float16" else field for field in form.fields)
    return replace(form, fields=fields, scales=FromHalfBits(form))


def without_half_bits(form: BlockForm) -> BlockForm:
    """The form with float16."""
    return form.scales.form if isinstance(form.scales, FromHalfBits) else form
