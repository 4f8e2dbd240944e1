"""Q5_0 and Q5_1 in blocks of 256 inputs decode to the numbers of the file's blocks."""

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.wide_blocks import wide_fields, with_wide_blocks
from tests.pallas_kernels.block_forms.test_ggml_forms import blocks_of


def values(form, fields):
    return np.asarray(form.decode({field.name: jnp.asarray(fields[field.name]) for field in form.fields}, jnp.float32))


@pytest.mark.parametrize("name", ["Q5_0", "Q5_1"])
def test_wide_blocks_have_the_numbers_and_bytes_of_the_file(name):
    form, wide = GGML_FORMS[name], with_wide_blocks(GGML_FORMS[name], 768)
    fields = form.split(blocks_of(name, shape=(3, 768)))
    of_kernels = fields | wide_fields(name, fields)
    np.testing.assert_array_equal(values(wide, of_kernels), values(form, fields))
    assert sum(of_kernels[field.name].nbytes for field in wide.fields) == sum(x.nbytes for x in fields.values())


def test_other_forms_and_rows_of_other_lengths_stay_as_they_are():
    for name, shape in (("Q5_0", (3, 384)), ("Q4_0", (3, 512)), ("Q5_K", (3, 512))):
        assert not wide_fields(name, GGML_FORMS[name].split(blocks_of(name, shape)))
        assert with_wide_blocks(GGML_FORMS[name], shape[1]) is GGML_FORMS[name]
