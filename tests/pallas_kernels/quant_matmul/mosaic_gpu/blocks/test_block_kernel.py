"""The GPU kernel of packed blocks, interpreted, equals the reference in float64 for every form that it serves.

The interpreter adds the products of a step in another order than wgmma; both are within the bounds.
"""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.block_forms.form_changes import device_fields
from pallas_kernels.block_forms.table_forms import with_scales, without_nesting
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks import field_boxes, kernel_sizes
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.quant_matmul.block_checks import Case, check, multiply
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS, NESTED_FORMS

NARROW, WIDE = BlockSizes(64, 256, 1), BlockSizes(128, 256, 1)
PLAIN = Case("one_row", "Q4_0", 1, 64, 768, block=NARROW, num_layers=3)
CASES = [
    PLAIN,
    replace(PLAIN, name="bias", num_rows=5, num_columns=192, has_bias=True),
    replace(PLAIN, name="float16", num_rows=8, dtype="float16"),
    replace(PLAIN, name="two_warpgroups", num_rows=17, num_columns=256, out_dtype="float32", block=WIDE),
    replace(PLAIN, name="sixty_four_rows", num_rows=64),
    replace(PLAIN, name="three_chunks", num_rows=129),
    replace(PLAIN, name="two_chunks_silu_splits", num_rows=65, activation="silu", block=replace(NARROW, splits=2)),
    replace(PLAIN, name="splits", num_rows=8, num_inputs=1280, has_bias=True, block=replace(NARROW, splits=2)),
    # Of three steps, the first of four splits has none.
    replace(PLAIN, name="empty_split", num_rows=8, block=replace(NARROW, splits=4)),
    # Rows of 6, 12, 24 and 40 bytes are no multiple of 16.
    Case("two_whole_fields", "Q4_K", 3, 128, 768, activation="silu", block=WIDE),
    Case("whole_field_of_vectors", "Q8_0", 3, 64, 640, has_bias=True),
    replace(PLAIN, name="whole_field_in_splits", form="INT4-g128 with zeros", block=replace(NARROW, splits=2)),
    # Of blocks, of which four offsets have 16 bytes, only the values of scales are copied once.
    Case("values_of_scales_alone", "NF4-g64 nested", 3, 64, 2048, block=NARROW),
    # The last step shares inputs with the one before.
    Case("shared_inputs", "Q4_0", 5, 576, 576, block=NARROW),
    Case("shared_inputs_of_8_bits", "Q8_0", 3, 192, 576, block=BlockSizes(64, 128, 2)),
    Case("shared_inputs_of_fields_in_steps", "INT4-g32 of float32", 3, 64, 640, block=NARROW),
    Case("shared_inputs_silu_splits", "NF4-g64", 8, 128, 2880, activation="silu", block=replace(NARROW, splits=2)),
    Case("one_step_more", "INT4-g64", 17, 128, 320, has_bias=True),
    replace(PLAIN, name="silu", num_rows=3, activation="silu"),
    Case("smaller_chunks", "Q6_K", 64, 64, 2048, activation="silu"),
    Case("chunks_of_a_gate", "MXFP4", 64, 128, 512, activation="silu"),
    replace(PLAIN, name="gelu_tanh_wide", num_rows=9, num_columns=128, activation="gelu_tanh", block=WIDE),
    replace(PLAIN, name="silu_splits", num_rows=8, activation="silu", block=replace(NARROW, splits=2)),
]
REFUSED = {"Q5_0", "Q5_1", "FP8-g512"}


def num_inputs(form: str) -> int:
    """Of the shortest rows, but at least four steps of the most: whose scales and zeros have a multiple of 16 bytes."""
    return 2048 if form.endswith("K") or form.endswith("g128 with zeros") else 1024


@pytest.fixture(autouse=True)
def _on_a_tiny_gpu() -> Iterator[None]:
    """Two steps in shared memory, so that the third takes the first one's place."""
    with host_callbacks(), patch.object(kernel_sizes, "MAX_DEPTH", 2):
        yield


@pytest.mark.thinned(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_of_product_equals_the_reference(case):
    check(case)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("form", sorted(FORMS.keys() - REFUSED))
def test_every_form_equals_the_reference(form):
    check(Case(form, form, 5, 64, num_inputs(form), out_dtype="float32"))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", NESTED_FORMS)
def test_an_outer_scale_is_for_some_steps_or_a_part_of_one(form):
    check(Case(form, form, 5, 64, NESTED_FORMS[form].block_len, out_dtype="float32"))


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("form", ["NF4-g64, 8 of 1536", "NF4-g64, 9 of 1408, parted"])
def test_scales_that_are_codes_make_the_products_of_the_numbers_that_they_stand_for(form, activation):
    """Bit for bit: these are float32, as the kernel computes them. It begins in the middle of an outer scale."""
    block = BlockSizes(64, 256, 2) if activation is None else BlockSizes(128, 256, 1)
    num_inputs = NESTED_FORMS[form].block_len
    case = Case(form, form, 8, 128, num_inputs, activation=activation, out_dtype="float32", block=block)
    stack = case.arguments()["stack"]
    numbers = without_nesting(stack.form)
    plain = replace(stack, form=numbers, fields=device_fields(stack.form, stack.fields, numbers))
    np.testing.assert_array_equal(multiply(case), multiply(case, stack=plain))


def test_whole_fields_are_copied_in_parts_where_they_are_long():
    """As rows of 296 bytes would be, and with it the last step of a row."""
    case = Case("parts", "NF4-g64, 1 of 320", 5, 64, 320, out_dtype="float32")
    whole = multiply(case)
    with patch.object(field_boxes, "MAX_COPIED", 2):
        assert box_of(case, "scale_codes").whole_copies == ((0, 2), (2, 2), (4, 1))
        np.testing.assert_array_equal(multiply(case), whole)
    check(case)


def box_of(case: Case, name: str) -> field_boxes.FieldBox:
    boxes = field_boxes.field_boxes(NESTED_FORMS[case.form], case.num_inputs, 256)
    return next(box for box in boxes if box.name == name)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "form", ["Q8_0", "INT8-g128 with zeros", "INT7-g128", "Q6_K", "FP8-g128", "FP8-E5M2-g128", "NF4-g64", "MXFP4"]
)
def test_float16_has_more_bits(form):
    """Codes of 7 and 8 bits become numbers in another way."""
    check(Case(form, form, 8, 64, num_inputs(form), dtype="float16"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scales_in_the_dtype_of_the_inputs_change_no_bit(dtype):
    """The kernel would round them to it."""
    case = Case("NF4", "NF4-g64", 5, 64, 1024, dtype=dtype, out_dtype="float32")
    stack = case.arguments()["stack"]
    fields = stack.fields | {"scales": stack.fields["scales"].astype(dtype)}
    rounded = replace(stack, fields=fields, form=with_scales(stack.form, dtype))
    np.testing.assert_array_equal(multiply(case, stack=rounded), multiply(case))


def test_the_control_another_layer_is_seen():
    for layer in (0, 1):
        assert np.isnan(multiply(PLAIN, layer=jnp.int32(layer))).all()


def test_a_row_that_is_not_a_number_harms_itself_only():
    """Rows share every product; those that fill a product are zeros."""
    case = replace(PLAIN, num_rows=3)
    healthy, x = multiply(case), case.arguments()["x"]
    broken = multiply(case, x=x.at[1].set(jnp.nan))
    assert np.isnan(broken[1]).all()
    np.testing.assert_array_equal(np.delete(broken, 1, axis=0), np.delete(healthy, 1, axis=0))


def test_splits_change_a_result_by_rounding_only():
    case = replace(PLAIN, num_rows=8, out_dtype="float32")
    one, two = (multiply(replace(case, block=replace(NARROW, splits=n))) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-5 * np.abs(one).max())
    np.testing.assert_array_equal(two, multiply(replace(case, block=replace(NARROW, splits=2))))


def test_a_matrix_that_is_no_layers_is_served():
    arguments = PLAIN.arguments()
    stack = arguments["stack"]
    head = replace(stack, fields={name: (field[-1],) for name, field in stack.fields.items()})
    np.testing.assert_array_equal(multiply(PLAIN, stack=head, layer=jnp.int32(0)), multiply(PLAIN))
    layers = replace(stack, fields={name: tuple(field) for name, field in stack.fields.items()})
    with pytest.raises(NotImplementedError, match="it reads one array of all layers"):
        multiply(PLAIN, stack=layers)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "it multiplies bfloat16 or float16, not float32"),
        ({"form": "Q5_0"}, "it decodes 16 bytes at once: Q5_0 has shorter groups or runs"),
        ({"form": "INT2-g64 with zeros", "num_columns": 96}, "96 columns are no multiple of 64"),
        ({"num_inputs": 544}, "544 inputs are no multiple of 64"),
        ({"form": "INT6-g64", "num_inputs": 576}, "576 inputs are no multiple of 128"),
        ({"num_inputs": 192}, "192 inputs are fewer than a step's 256"),
        (
            {"form": "INT4-g128", "num_inputs": 256 * 129},
            "rows of 516 bytes of scales, no multiple of 16, nor at most 256 numbers or 512 bytes",
        ),
        ({"form": "FP8-g512", "num_inputs": 1024}, r"blocks of 512 inputs \(FP8-g512\) do not divide 128"),
        ({"block": WIDE}, "blocks of 128 columns do not divide 64"),
        ({"block": BlockSizes(64, 128, 1)}, "or steps have 128 inputs, not 256"),
    ],
)
def test_the_kernel_refuses_with_a_reason(changes, reason):
    case = replace(PLAIN, **{"block": None} | changes)
    with pytest.raises(NotImplementedError, match=f"mosaic_gpu: .*{reason}"):
        multiply(case)
