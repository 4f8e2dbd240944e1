"""Packed blocks decode as the format's reference implementation does, bit for bit."""

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import quants

from pallas_kernels.block_forms.ggml_forms import GGML_FORMS


def blocks_of(name, shape=(5, 512), seed=0, scale=0.1):
    """Random bytes whose scales are numbers, [rows, bytes]."""
    form, rng = GGML_FORMS[name], np.random.default_rng(seed)
    raw = rng.integers(0, 256, (shape[0], shape[1] // form.block_len, form.block_bytes)).astype(np.uint8)
    start = 0
    for field in form.fields:
        if field.dtype == "float16":
            halves = rng.normal(scale=scale, size=(*raw.shape[:2], field.count)).astype(np.float16)
            raw[:, :, start : start + field.num_bytes] = halves.view(np.uint8)
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


@pytest.mark.parametrize("name", GGML_FORMS)
def test_forms_have_the_sizes_of_the_format(name):
    form = GGML_FORMS[name]
    assert (form.block_len, form.block_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert sum(plane.bits for plane in form.planes) == int(name[1])
    fields = {field.name: field for field in form.fields}
    for plane in form.planes:
        assert fields[plane.field].count * 8 == form.block_len * plane.bits
