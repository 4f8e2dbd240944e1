"""Stacks of packed blocks of every kind of form, with numbers in the last layer alone."""

import jax.numpy as jnp
import numpy as np

from pallas_kernels.block_forms.float_forms import float_form
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.packed_zeros import with_packed_zeros
from pallas_kernels.block_forms.table_forms import RUN_STARTS, nested_form, table_form, with_scales
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS
from pallas_kernels.block_tensor import BlockTensor

INT_FORMS = {
    f"{form.name}{' with zeros' if has_zeros else ''}": form
    for bits, group_len, has_zeros in [
        (2, 64, True),
        (3, 128, False),
        (4, 32, False),
        (4, 64, False),
        (4, 128, False),
        (4, 128, True),
        (5, 128, True),
        (6, 64, False),
        (7, 128, False),
        (8, 128, False),
        (8, 128, True),
    ]
    if (form := int_form(bits, group_len, "float16", has_zeros)) is not None
}
FLOAT_FORMS = {
    form.name: form
    for form in (
        float_form("float8_e4m3fn", 128, "bfloat16"),
        float_form("float8_e4m3fn", 512, "float32"),
        float_form("float8_e5m2", 128, "float32"),
    )
}
# The values of NF4 are as uneven.
TABLE, SCALE_TABLE = (tuple(float(np.float32(x**3)) for x in np.linspace(-1, 1, n)) for n in (16, 256))
NF4 = table_form("NF4", TABLE, 64)
assert NF4 is not None
TABLE_FORMS = {form.name: form for form in (NF4, nested_form(NF4, SCALE_TABLE, 4, 512))}
TABLE_FORMS["NF4-g64 nested, parted"] = nested_form(NF4, SCALE_TABLE, 5, 512, 3)
TABLE_FORMS["NF4-g64 of bfloat16"] = with_scales(NF4, "bfloat16")
NESTED_FORMS = {
    f"NF4-g{group_len}, {run_len} of {num_inputs}{', parted' if num_runs else ''}": nested_form(
        plain, SCALE_TABLE, run_len, num_inputs, num_runs
    )
    for group_len, run_len, num_inputs, num_runs in [
        (64, 16, 1024, 0),
        (64, 8, 1536, 0),
        (64, 2, 768, 0),
        (64, 1, 320, 0),
        (32, 16, 1536, 0),
        (64, 9, 1408, 4),
        (64, 64, 1024, 2),
        (32, 20, 576, 2),
        (64, 7, 1024, 4),
    ]
    if (plain := table_form("NF4", TABLE, group_len)) is not None
}
"""Double quantization of rows of so many inputs, of which so many scales have an outer one in common: a row, two
steps, half a step or a quarter of 256 inputs; of the fifth form a row has three of two steps each. Of the last four
rows have parts of runs, which end within steps."""
FLOAT32_SCALES = int_form(4, 32, "float32", False)
assert FLOAT32_SCALES is not None
INT_FORMS["INT4-g32 of float32"] = FLOAT32_SCALES
INT_FORMS |= {
    f"{form.name} with packed zeros": with_packed_zeros(form, 0)
    for bits, group_len in [(2, 64), (4, 32)]
    if (form := int_form(bits, group_len, "float16", has_zeros=True)) is not None
}
FORMS = GGML_FORMS | {f"{name} wide": form for name, form in WIDE_FORMS.items()} | INT_FORMS | FLOAT_FORMS | TABLE_FORMS


def block_stack(form, num_layers, out, num_inputs, seed=0, decades=0):
    """Scales of all layers but the last are NaN, or too large for products to be numbers; those of the last differ by a
    factor of 10^decades and more."""
    rng, fields = np.random.default_rng(seed), {}
    for field in form.fields:
        shape = (num_layers, *out, num_inputs // form.block_len * field.count)
        if field.dtype.startswith("float8"):
            values = rng.normal(size=shape).astype(field.dtype)
        elif jnp.issubdtype(jnp.dtype(field.dtype), jnp.floating):
            values = rng.normal(scale=0.05, size=shape) * 10.0 ** rng.integers(-decades, 1, shape)
            values = values.astype(field.dtype)
            values[:-1] = np.nan
        elif field.name == "exponents":
            values = rng.integers(122 - 3 * decades, 126, shape).astype(np.uint8)
            values[:-1] = 255
        elif field.name == RUN_STARTS:
            values = rng.integers(0, form.scales.run_len, shape).astype(field.dtype)
        else:
            num_bits = sum(plane.bits for plane in form.planes) if field.name == "zeros" else 8
            values = rng.integers(0, 2**num_bits, shape).astype(np.uint8).view(field.dtype)
        fields[field.name] = jnp.asarray(values)
    return BlockTensor(fields, form, "bfloat16")
