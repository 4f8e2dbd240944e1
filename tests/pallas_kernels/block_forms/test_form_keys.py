"""A form is found again by its name."""

import numpy as np
import pytest

from pallas_kernels.block_forms.float_forms import NAMES, float_form
from pallas_kernels.block_forms.form_keys import form_of_key, key_of
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_forms.input_orders import with_order
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.table_forms import nested_form, table_form
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS

STORED = [*GGML_FORMS.values(), *WIDE_FORMS.values()] + [
    int_form(bits, group_len, scales, has_zeros)
    for bits in range(2, 9)
    for group_len, scales, has_zeros in ((32, "float16", True), (64, "bfloat16", False), (128, "float32", True))
]
STORED += [float_form(codes, *rest) for codes in NAMES for rest in ((128, "bfloat16"), (4096, "float16"))]
TABLE, SCALE_TABLE = (tuple(np.linspace(-1, 1, n, dtype=np.float32).tolist()) for n in (16, 256))
NF4 = table_form("NF4", TABLE, 64)
STORED += [NF4, table_form("FP4", TABLE, 128), nested_form(NF4, SCALE_TABLE, 8, 1024)]
STORED += [nested_form(NF4, TABLE * 16, 8, 1024), nested_form(NF4, TABLE * 16, 4, 1024)]
STORED += [with_order(int_form(4, 128, "float16", True)), with_order(int_form(8, 64, "bfloat16", False))]
FORMS = STORED + [kept for form in STORED if (kept := with_half_bits(form)) != form]


def test_forms_have_keys_of_their_own():
    assert len({key_of(form) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=key_of)
def test_a_form_is_found_by_its_key(form):
    assert form_of_key(key_of(form)) == form


@pytest.mark.parametrize("key", ["Q9_9", "int 4 3 float16 zeros", "nf4 4 64 float16 zeros", "float int8 32 float16"])
def test_other_keys_are_refused(key):
    with pytest.raises(ValueError, match=r"no form"):
        form_of_key(key)
