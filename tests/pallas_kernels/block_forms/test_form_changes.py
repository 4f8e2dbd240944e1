"""Blocks as TPUs and GPUs have them decode to the numbers of the file's, and are saved as the file has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.float_forms import float_form
from pallas_kernels.block_forms.form_changes import device_fields, saved_fields, saved_form
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_forms.input_orders import with_order
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_forms.packed_zeros import packed_zeros, with_packed_zeros
from pallas_kernels.block_forms.table_forms import NestedScales, in_shares, nested_form, table_form, without_nesting
from pallas_kernels.block_forms.wide_blocks import with_wide_blocks
from tests.pallas_kernels.block_forms.test_ggml_forms import blocks_of

SHAPE = (2, 3, 512)
NF4 = table_form("NF4", tuple(np.linspace(-1, 1, 16).tolist()), 64)
NESTED = nested_form(NF4, tuple(np.linspace(-1, 1, 256).tolist()), 4, SHAPE[-1])
GROUPS, *SMALL_GROUPS = (
    int_form(bits, group_len, "float16", has_zeros=True) for bits, group_len in ((4, 64), (4, 32), (3, 32), (2, 64))
)
assert GROUPS is not None
FORMS = [
    *GGML_FORMS.values(),
    GROUPS,
    *SMALL_GROUPS,
    with_order(SMALL_GROUPS[0]),
    with_order(GROUPS),
    NESTED,
    float_form("float8_e4m3fn", 128, "bfloat16"),
]


def on_tpu(form):
    return with_half_bits(with_wide_blocks(with_packed_zeros(form, SHAPE[-1]), SHAPE[-1]))


def on_gpu(form):
    return with_wide_blocks(without_nesting(form), SHAPE[-1])


def fields_of(form: BlockForm):
    *out, num_inputs = SHAPE
    if form.name in GGML_FORMS:
        fields = form.split(blocks_of(form.name, (np.prod(out), num_inputs)))
    else:
        rng, num_blocks = np.random.default_rng(0), num_inputs // form.block_len
        run_len = form.scales.run_len if isinstance(form.scales, NestedScales) else 0
        most = {"run_starts": run_len, "zeros": 2 ** sum(plane.bits for plane in form.planes)}
        fields = {
            field.name: rng.integers(0, most.get(field.name, 256), (*out, num_blocks * field.count))
            for field in form.fields
        }
    return {field.name: jnp.asarray(fields[field.name].reshape(*out, -1), field.dtype) for field in form.fields}


def values(form, fields):
    return np.asarray(jax.jit(form.decode, static_argnums=1)(fields, jnp.float32))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("on_device", [on_tpu, on_gpu, lambda form: form])
def test_a_device_has_the_numbers_of_the_file_which_are_saved_as_they_were(form, on_device):
    own, fields = on_device(form), fields_of(form)
    found = device_fields(form, fields, own)
    assert {name: array.dtype.name for name, array in found.items()} == {x.name: x.dtype for x in own.fields}
    np.testing.assert_array_equal(values(own, found), values(form, fields))
    again = saved_fields(own, found)
    if own == without_nesting(form) != form:  # codes of scales are gone
        assert saved_form(own) == own
        jax.tree.map(np.testing.assert_array_equal, again, found)
    else:
        assert saved_form(own) == form
        jax.tree.map(np.testing.assert_array_equal, again, fields)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scales_of_double_quantization_are_rounded_once_and_saved_as_the_numbers_that_they_are(dtype):
    own, fields = without_nesting(NESTED, dtype), fields_of(NESTED)
    exact, found = (device_fields(NESTED, fields, form) for form in (without_nesting(NESTED), own))
    assert found["scales"].dtype == dtype
    np.testing.assert_array_equal(found["scales"], exact["scales"].astype(dtype))
    np.testing.assert_array_equal(found["bits_4"], exact["bits_4"])
    assert saved_form(own) == own
    jax.tree.map(np.testing.assert_array_equal, saved_fields(own, found), found)


@pytest.mark.parametrize(("run_len", "num_runs"), [(8, 0), (4, 0), (5, 3), (64, 2)])
@pytest.mark.parametrize("num_shares", [2, 8])
def test_shares_of_rows_have_the_numbers_of_the_row_and_are_saved_as_they_are(run_len, num_runs, num_shares):
    assert NF4 is not None
    form = nested_form(NF4, NESTED.scales.values, run_len, SHAPE[-1], num_runs)
    fields, own = fields_of(form), in_shares(form, SHAPE[-1] // num_shares)
    found = device_fields(form, fields, own)
    expected = np.split(values(form, fields), num_shares, axis=-1)
    for share in range(num_shares):
        part = {name: np.split(field, num_shares, axis=-1)[share] for name, field in found.items()}
        np.testing.assert_array_equal(values(own, part), expected[share])
    assert saved_form(own) == own
    jax.tree.map(np.testing.assert_array_equal, saved_fields(own, found), found)
    for shorter in (SHAPE[-1] // 8, SHAPE[-1]):
        again = in_shares(own, shorter)
        np.testing.assert_array_equal(values(again, device_fields(own, found, again)), values(form, fields))


def test_shares_that_have_parts_of_groups_are_none():
    assert in_shares(NESTED, 96) == NESTED
    assert NF4 is not None
    assert in_shares(NF4, 32) == NF4


@pytest.mark.parametrize(("bits", "group_len"), [(2, 32), (2, 128), (3, 64), (4, 32), (4, 64), (4, 128), (8, 32)])
def test_zero_points_are_packed_where_bytes_would_add_more_than_two_percent(bits, group_len):
    form = int_form(bits, group_len, "float16", has_zeros=True)
    assert form is not None
    of_file = group_len * bits / 8 + 2 + bits / 8
    packed = with_packed_zeros(form, 4 * group_len)
    assert packed.block_bytes / packed.block_len * group_len <= 1.02 * of_file
    assert (packed == form) == (form.block_bytes <= 1.02 * of_file)
    assert with_packed_zeros(form, 5 * group_len) == form, "rows of which bytes would have parts stay as they are"
    zeros = np.zeros((2, 5), np.uint8)
    assert not packed_zeros(np, form, {"zeros": zeros})
