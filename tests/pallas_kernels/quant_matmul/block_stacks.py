"""Stacks of random packed blocks, of all forms that tests multiply, with half bits as TPUs keep them."""

import jax.numpy as jnp
import numpy as np

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits, without_half_bits
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_tensor import BlockTensor

LAYERS = 3


def ints(bits: int, group_len: int, scales: str = "float16", *, has_zeros: bool = False) -> BlockForm:
    form = int_form(bits, group_len, scales, has_zeros)
    assert form is not None
    return form


FORMS = {
    **GGML_FORMS,
    "INT4-g32": ints(4, 32),
    "INT4-g128, zeros": ints(4, 128, has_zeros=True),
    "INT4-g256": ints(4, 256),
    "INT6-g128, zeros": ints(6, 128, "bfloat16", has_zeros=True),
    "INT5-g128": ints(5, 128),
    "INT8-g64": ints(8, 64),
    "INT8, a group": ints(8, 1024, "float32"),
    "INT8-g128, zeros": ints(8, 128, "bfloat16", has_zeros=True),
}


def random_stack(form: BlockForm, num_inputs: int, *out: int, seed: int = 0) -> BlockTensor:
    """Of `LAYERS` layers, of which the last one has numbers: scales of the others are NaN, all bits of halves of which
    are ones."""
    stored, rng, fields = without_half_bits(form), np.random.default_rng(seed), dict[str, jnp.ndarray]()
    for field in stored.fields:
        shape, dtype = (LAYERS, *out, num_inputs // form.block_len * field.count), jnp.dtype(field.dtype)
        if dtype.kind in "fV":
            values = (rng.normal(scale=0.1, size=shape) * 10.0 ** rng.integers(-4, 1, shape)).astype(dtype)
            values[:-1] = np.nan
        else:
            most = 2 ** sum(plane.bits for plane in form.planes) if field.name == "zeros" else 256
            values = rng.integers(0, most, shape).astype(np.uint8).view(dtype)
        kept = next(own.dtype for own in form.fields if own.name == field.name)
        fields[field.name] = jnp.asarray(values.view(kept))
    return BlockTensor(fields, form, "bfloat16")


def kept_on_tpu(name: str) -> BlockForm:
    return with_half_bits(FORMS[name])
