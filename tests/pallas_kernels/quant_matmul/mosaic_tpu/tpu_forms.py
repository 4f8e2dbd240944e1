"""Forms of packed blocks as TPUs keep them, and stacks of them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.float_forms import float_form
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits, without_half_bits
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.packed_zeros import with_packed_zeros
from pallas_kernels.block_forms.table_forms import in_shares, row_form
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS
from pallas_kernels.block_tensor import BlockTensor
from tests.pallas_kernels.quant_matmul.block_stacks import NF4, SCALE_TABLE, TABLE_FORMS, block_stack

LAYERS = 3


def ints(bits: int, group_len: int, scales: str = "float16", *, has_zeros: bool = False) -> BlockForm:
    form = int_form(bits, group_len, scales, has_zeros)
    assert form is not None
    return form


FORMS = {
    **GGML_FORMS,
    **{f"{name} wide": form for name, form in WIDE_FORMS.items()},
    "INT4-g32": ints(4, 32),
    "INT4-g64": ints(4, 64),
    "INT4-g32, packed zeros": with_packed_zeros(ints(4, 32, has_zeros=True), 0),
    "INT4-g128, zeros": ints(4, 128, has_zeros=True),
    "INT4-g256": ints(4, 256),
    "INT6-g128, zeros": ints(6, 128, "bfloat16", has_zeros=True),
    "INT5-g128": ints(5, 128),
    "INT8-g64": ints(8, 64),
    "INT8, a group": ints(8, 1024, "float32"),
    "INT8-g128, zeros": ints(8, 128, "bfloat16", has_zeros=True),
    "FP8-g128": float_form("float8_e4m3fn", 128, "bfloat16"),
    "FP8-g64": float_form("float8_e4m3fn", 64, "bfloat16"),
    "FP8, a group": float_form("float8_e4m3fn", 1024, "float32"),
    **TABLE_FORMS,
    "FP8-E5M2-g64": float_form("float8_e5m2", 64, "float16"),
}

OF_LARGE_MODELS = {
    f"NF4 nested, {num_inputs} inputs": row_form(NF4, SCALE_TABLE, 256, num_inputs) for num_inputs in (14336, 11008)
}
OF_LARGE_MODELS["NF4 nested, shares of 11008 inputs"] = in_shares(OF_LARGE_MODELS["NF4 nested, 11008 inputs"], 2752)


def random_stack(form: BlockForm, num_inputs: int, *out: int) -> BlockTensor:
    """Of `LAYERS` layers, the last one with numbers, subnormal ones too; halves are kept as the form has them."""
    stored = block_stack(without_half_bits(form), LAYERS, out, num_inputs, decades=4)
    fields = {
        field.name: jnp.asarray(np.asarray(stored.fields[field.name]).view(jnp.dtype(field.dtype)))
        for field in form.fields
    }
    return replace(stored, fields=fields, form=form)


def kept_on_tpu(name: str) -> BlockForm:
    return with_half_bits((FORMS | OF_LARGE_MODELS)[name])
