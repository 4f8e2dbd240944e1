"""Blocks of GGUF have the bytes that ggml's reference quantization, as the `gguf` package has it, gives them."""

import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType

from checkpoints.quantized.ggml_blocks import BLOCK_LEN, GGML_BLOCKS
from checkpoints.quantized.quantized_weight import Misfit
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS


def rows_of(num_rows=2048, num_inputs=8 * BLOCK_LEN):
    """Of many sizes, with zeros, equal magnitudes, halves and numbers next to halves."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_rows, num_inputs), np.float32) * np.exp2(rng.integers(-30, 12, (num_rows, 1)))
    rows[0], rows[1, :BLOCK_LEN] = 0, 0
    rows[2] = rng.choice(np.array([-1.5, 1.5], np.float32), num_inputs)
    rows[3] = rng.integers(-254, 255, num_inputs) / 2
    rows[3, ::BLOCK_LEN] = 127  # so that codes are halves
    rows[4] = np.nextafter(rows[3], 0)
    rows[4, ::BLOCK_LEN] = -127
    rows[5] = rng.integers(-16, 17, num_inputs) / 2
    rows[5, ::BLOCK_LEN] = -8
    return rows.astype(np.float32)


@pytest.mark.parametrize("name", GGML_BLOCKS)
def test_bytes_are_those_of_the_reference(name):
    rows = rows_of()
    expected = quants.quantize(rows, GGMLQuantizationType[name])
    np.testing.assert_array_equal(GGML_BLOCKS[name].encode(rows), expected)
    assert expected.nbytes == GGML_BLOCKS[name].num_bytes(rows.size)


def test_rows_are_such_that_other_roundings_show():
    """Controls: rounded to even, or with the product and the sum rounded once, they have other codes."""
    rows = rows_of().reshape(-1, BLOCK_LEN)
    scales, codes = GGML_BLOCKS["Q8_0"].encoded(rows)
    to_even = np.rint(rows * (1 / np.where(scales > 0, scales, 1)))
    assert 100 < (codes != to_even).sum() < codes.size / 10
    scales, codes = GGML_BLOCKS["Q4_0"].encoded(rows)
    inverse = 1 / np.where(scales != 0, scales, np.float32(np.inf))
    fused = np.minimum(rows.astype(np.float64) * inverse + 8.5, 15).astype(np.uint8)
    halves = np.concatenate([codes & 15, codes >> 4], axis=1)
    assert 0 < (halves != fused).sum() < codes.size / 1000


@pytest.mark.parametrize("name", GGML_BLOCKS)
def test_devices_find_the_same_codes_in_the_bytes(name):
    rows = rows_of()
    scales, codes = GGML_BLOCKS[name].encoded(rows.reshape(-1, BLOCK_LEN))
    fields = GGML_FORMS[name].split(GGML_BLOCKS[name].encode(rows))
    np.testing.assert_array_equal(fields["scales"], scales.reshape(len(rows), -1).astype(np.float16))
    (found,) = (values for field, values in fields.items() if field != "scales")
    np.testing.assert_array_equal(found, codes.reshape(len(rows), -1))


@pytest.mark.parametrize("name", GGML_BLOCKS)
def test_scales_beyond_float16_are_refused(name):
    with pytest.raises(Misfit, match="beyond float16"):
        GGML_BLOCKS[name].encode(np.full((1, BLOCK_LEN), 1e7, np.float32))
