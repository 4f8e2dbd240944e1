"""A form is found again by its name, which saved weights have and which therefore stays."""

import hashlib

import numpy as np
import pytest

from pallas_kernels.block_forms.float_forms import NAMES, float_form
from pallas_kernels.block_forms.form_changes import saved_form
from pallas_kernels.block_forms.form_keys import form_of_key, key_of
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_forms.input_orders import with_order
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.packed_zeros import with_packed_zeros
from pallas_kernels.block_forms.table_forms import nested_form, table_form, with_scales
from pallas_kernels.block_forms.wide_blocks import WIDE_FORMS

STORED = [*GGML_FORMS.values(), *WIDE_FORMS.values()] + [
    int_form(bits, group_len, scales, has_zeros)
    for bits in range(2, 9)
    for group_len, scales, has_zeros in ((32, "float16", True), (64, "bfloat16", False), (128, "float32", True))
]
STORED += [float_form(codes, *rest) for codes in NAMES for rest in ((128, "bfloat16"), (4096, "float16"))]
SMALL_GROUPS = int_form(4, 32, "float16", True)
TABLE, SCALE_TABLE = (tuple(np.linspace(-1, 1, n, dtype=np.float32).tolist()) for n in (16, 256))
NF4 = table_form("NF4", TABLE, 64)
STORED += [NF4, table_form("FP4", TABLE, 128), nested_form(NF4, SCALE_TABLE, 8, 1024)]
STORED += [nested_form(NF4, TABLE * 16, 8, 1024), nested_form(NF4, TABLE * 16, 4, 1024)]
STORED += [nested_form(NF4, TABLE * 16, 256, 11008, 2)]
STORED += [with_scales(NF4, "bfloat16"), with_scales(NF4, "float16")]
STORED += [with_order(int_form(4, 128, "float16", True)), with_order(int_form(8, 64, "bfloat16", False))]
STORED += [
    with_packed_zeros(form, 0) for form in (SMALL_GROUPS, with_order(SMALL_GROUPS), int_form(2, 64, "float32", True))
]
FORMS = STORED + [kept for form in STORED if (kept := with_half_bits(form)) != form]


def test_forms_have_keys_of_their_own():
    assert len({key_of(form) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=key_of)
def test_a_form_is_found_by_its_key(form):
    assert form_of_key(key_of(form)) == form


@pytest.mark.parametrize(
    "key",
    [
        "Q9_9",
        "packed zeros of int 4 128 float16 zeros",
        "int 4 3 float16 zeros",
        "nf4 4 64 float16 zeros",
        "float int8 32 float16",
    ],
)
def test_other_keys_are_refused(key):
    with pytest.raises(ValueError, match=r"no form"):
        form_of_key(key)


SAVED = {
    "Q8_0": "32 of scales float16 1, codes int8 32",
    "Q4_0": "32 of scales float16 1, nibbles uint8 16",
    "Q4_1": "32 of scales float16 1, minima float16 1, nibbles uint8 16",
    "Q5_0": "32 of scales float16 1, fifth_bits uint8 4, nibbles uint8 16",
    "Q5_1": "32 of scales float16 1, minima float16 1, fifth_bits uint8 4, nibbles uint8 16",
    "MXFP4": "32 of exponents uint8 1, nibbles uint8 16",
    "Q4_K": "256 of block_scales float16 1, block_minima float16 1, group_scales uint8 12, nibbles uint8 128",
    "Q5_K": (
        "256 of block_scales float16 1, block_minima float16 1, group_scales uint8 12, fifth_bits uint8 32, "
        "nibbles uint8 128"
    ),
    "Q6_K": "256 of nibbles uint8 128, bit_pairs uint8 64, group_scales int8 16, block_scales float16 1",
    "int 2 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_2 uint8 8",
    "int 2 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_2 uint8 16",
    "int 2 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_2 uint8 32",
    "int 3 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_2 uint8 8, bits_1 uint8 4",
    "int 3 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_2 uint8 16, bits_1 uint8 8",
    "int 3 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_2 uint8 32, bits_1 uint8 16",
    "int 4 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_4 uint8 16",
    "int 4 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_4 uint8 32",
    "int 4 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_4 uint8 64",
    "int 5 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_4 uint8 16, bits_1 uint8 4",
    "int 5 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_4 uint8 32, bits_1 uint8 8",
    "int 5 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_4 uint8 64, bits_1 uint8 16",
    "int 6 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_4 uint8 16, bits_2 uint8 8",
    "int 6 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_4 uint8 32, bits_2 uint8 16",
    "int 6 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_4 uint8 64, bits_2 uint8 32",
    "int 7 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_4 uint8 16, bits_2 uint8 8, bits_1 uint8 4",
    "int 7 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_4 uint8 32, bits_2 uint8 16, bits_1 uint8 8",
    "int 7 128 float32 zeros": (
        "128 of scales float32 1, zeros uint8 1, bits_4 uint8 64, bits_2 uint8 32, bits_1 uint8 16"
    ),
    "int 8 32 float16 zeros": "32 of scales float16 1, zeros uint8 1, bits_8 uint8 32",
    "int 8 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_8 uint8 64",
    "int 8 128 float32 zeros": "128 of scales float32 1, zeros uint8 1, bits_8 uint8 128",
    "float float8_e4m3fn 128 bfloat16": "128 of scales bfloat16 1, codes float8_e4m3fn 128",
    "float float8_e4m3fn 4096 float16": "4096 of scales float16 1, codes float8_e4m3fn 4096",
    "float float8_e5m2 128 bfloat16": "128 of scales bfloat16 1, codes float8_e5m2 128",
    "float float8_e5m2 4096 float16": "4096 of scales float16 1, codes float8_e5m2 4096",
    "table NF4-g64 1c94f28a": "64 of scales float32 1, bits_4 uint8 32",
    "table NF4-g64 1c94f28a bfloat16": "64 of scales bfloat16 1, bits_4 uint8 32",
    "table NF4-g64 1c94f28a float16": "64 of scales float16 1, bits_4 uint8 32",
    "table FP4-g128 1c94f28a": "128 of scales float32 1, bits_4 uint8 64",
    "table NF4-g64 1c94f28a 4a6e6766 8 1024": (
        "1024 of scale_codes uint8 16, outer_scales float32 2, scale_offsets float32 1, bits_4 uint8 512"
    ),
    "table NF4-g64 1c94f28a 3c7e4651 8 1024": (
        "1024 of scale_codes uint8 16, outer_scales float32 2, scale_offsets float32 1, bits_4 uint8 512"
    ),
    "table NF4-g64 1c94f28a 3c7e4651 4 1024": (
        "1024 of scale_codes uint8 16, outer_scales float32 4, scale_offsets float32 1, bits_4 uint8 512"
    ),
    "table NF4-g64 1c94f28a 3c7e4651 256 11008 2": (
        "11008 of scale_codes uint8 172, outer_scales float32 2, run_starts int32 1, scale_offsets float32 1, "
        "bits_4 uint8 5504"
    ),
    "in any order int 4 128 float16 zeros": "128 of scales float16 1, zeros uint8 1, bits_4 uint8 64",
    "in any order int 8 64 bfloat16 symmetric": "64 of scales bfloat16 1, bits_8 uint8 64",
}
"""Of each form in which blocks are saved: by its key, in which the bytes of a table are a digest, the length of a
block, and name, dtype and count of each of its fields."""


def described(form):
    words = [hashlib.sha256(word.encode()).hexdigest()[:8] if len(word) > 64 else word for word in key_of(form).split()]
    fields = ", ".join(f"{field.name} {field.dtype} {field.count}" for field in form.fields)
    return " ".join(words), f"{form.block_len} of {fields}"


def test_keys_and_fields_of_saved_forms_stay_what_they_are():
    """Another key, or other fields under it, would make saved folders unreadable: new forms have keys of their own."""
    assert dict(described(form) for form in STORED if saved_form(form) == form) == SAVED
