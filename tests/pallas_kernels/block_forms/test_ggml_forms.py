"""Packed blocks decode as the format's reference implementation does, bit for bit."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import quants

from pallas_kernels.block_forms.ggml_forms import GGML_FORMS


def blocks_of(name, shape=(5, 512), seed=0, scale=0.1):
    """Random bytes whose scales are numbers, and not large, [rows, bytes]."""
    form, rng = GGML_FORMS[name], np.random.default_rng(seed)
    raw = rng.integers(0, 256, (shape[0], shape[1] // form.block_len, form.block_bytes)).astype(np.uint8)
    start = 0
    for field in form.fields:
        if field.dtype == "float16":
            halves = rng.normal(scale=scale, size=(*raw.shape[:2], field.count)).astype(np.float16)
            raw[:, :, start : start + field.num_bytes] = halves.view(np.uint8)
        elif field.name == "exponents":  # of half a value's unit
            raw[:, :, start] = 125 + np.log2(scale).astype(int) - raw[:, :, start] % 4
        start += field.num_bytes
    return raw.reshape(shape[0], -1)


@pytest.mark.parametrize("name", GGML_FORMS)
def test_blocks_decode_as_the_reference_does(name):
    raw, form = blocks_of(name), GGML_FORMS[name]
    expected = quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    fields = form.split(raw)
    assert sum(field.nbytes for field in fields.values()) == raw.nbytes, "no byte is added"
    with jax.disable_jit():  # compiled, a product and a sum may be rounded once instead of twice
        found = np.asarray(form.decode({key: jnp.asarray(value) for key, value in fields.items()}, jnp.float32))
    np.testing.assert_array_equal(found, expected)


def test_every_code_has_its_value_by_every_power_of_two():
    """The largest are infinite in float32. Subnormal powers, and so weights below 2^-123, are 0."""
    raw = np.empty((256, 17), np.uint8)
    raw[:, 0], raw[:, 1:] = np.arange(256), np.arange(16) * 17
    with np.errstate(over="ignore"):
        expected = quants.dequantize(raw, gguf.GGMLQuantizationType.MXFP4)
    form = GGML_FORMS["MXFP4"]
    found = np.asarray(form.decode({key: jnp.asarray(value) for key, value in form.split(raw).items()}, jnp.float32))
    assert np.isinf(expected).any()
    np.testing.assert_array_equal(found[2:].view(np.uint32), expected[2:].view(np.uint32))
    assert (found[:2] == 0).all()
    assert np.abs(expected[:2]).max() < 2.0**-123


@pytest.mark.parametrize("name", GGML_FORMS)
def test_forms_have_the_sizes_of_the_format(name):
    form = GGML_FORMS[name]
    assert (form.block_len, form.block_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert sum(plane.bits for plane in form.planes) == int(next(filter(str.isdigit, name)))
    fields = {field.name: field for field in form.fields}
    for plane in form.planes:
        assert fields[plane.field].count * 8 == form.block_len * plane.bits
