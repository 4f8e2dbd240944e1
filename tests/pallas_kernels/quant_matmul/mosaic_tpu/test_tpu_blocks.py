"""The TPU kernel of products with packed blocks, interpreted, equals the reference in float64 for every form that it
serves, and refuses others by name."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.mosaic_tpu import tile_sizes
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, XLA_ROUNDINGS, errors
from tests.pallas_kernels.quant_matmul.mosaic_tpu.tpu_forms import FORMS, LAYERS, ints, kept_on_tpu, random_stack

REFUSED = {
    "Q5_0": "bits of Q5_0 lie in runs of 1 bytes",
    "Q5_1": "bits of Q5_1 lie in runs of 1 bytes",
    "INT4-g256": "two codes of a byte of INT4-g256 are of inputs more than 128 apart",
    "INT5-g128": "bits of INT5-g128 lie in runs of 16 bytes",
}
SERVED = [name for name in FORMS if name not in REFUSED]
TPU = MatmulSpec(backend="mosaic_tpu")


@cache
def compiled(spec):
    return jax.jit(partial(quant_matmul, spec=spec))


def product(x, stack, spec, layer=LAYERS - 1, **arrays):
    return np.asarray(compiled(spec)(x, stack, jnp.int32(layer), **arrays), np.float32)


def truth(x, stack, spec, **arrays):
    with jax.enable_x64(True):
        exact = replace(spec, backend="reference", out_dtype=jnp.dtype(jnp.float64))
        return np.asarray(quant_matmul(jnp.asarray(x, jnp.float64), stack, jnp.int32(LAYERS - 1), exact, **arrays))


def check(name, dtype, num_rows, num_inputs, *out, spec=TPU, **arrays):
    stack = random_stack(kept_on_tpu(name), num_inputs, *out)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(num_rows, num_inputs)), dtype)
    expected = truth(x, stack, spec, **arrays)
    # Weights are rounded, as dense ones are; with an activation also each product.
    bound = 2 * BOUNDS[dtype] * (1 if spec.activation is None else XLA_ROUNDINGS)
    assert errors(product(x, stack, spec, **arrays), expected).max() <= bound
    return x, stack


@pytest.mark.thinned(7)
@pytest.mark.parametrize("name", SERVED)
def test_products_of_every_form_equal_the_reference(name):
    """Other layers have no scales."""
    x, stack = check(name, "bfloat16", 5, max(512, FORMS[name].group_len), 128)
    assert np.isnan(product(x, stack, TPU, layer=0)).all(), "the control"


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("name", "dtype", "num_rows", "num_inputs", "out"),
    [
        ("Q4_0", "float32", 1, 128, (128,)),
        ("Q8_0", "float32", 8, 384, (256,)),
        ("Q4_K", "float32", 64, 768, (2, 128)),
        ("Q6_K", "float32", 5, 256, (3, 128)),
        ("INT4-g128, zeros", "float32", 5, 384, (128,)),
        ("Q4_0", "float32", 5, 576, (576,)),
        ("Q4_1", "bfloat16", 64, 192, (2, 64)),
        ("Q8_0", "float32", 5, 160, (960,)),
        ("INT4-g64", "float32", 3, 2880, (128,)),
        ("INT8-g64", "bfloat16", 17, 576, (3, 192)),
        ("NF4-g64", "float32", 5, 576, (192,)),
        ("MXFP4", "float32", 5, 576, (192,)),
        ("FP8-g64", "float32", 5, 192, (64,)),
        ("NF4-g64 nested", "float32", 5, 1024, (128,)),
        ("NF4-g64 nested, parted", "float32", 5, 1024, (128,)),
    ],
)
def test_awkward_shapes_are_served(name, dtype, num_rows, num_inputs, out):
    """Inputs in chunks of 128 and 256, the last of which may share some with the one before, outputs that do not fill
    lanes, and matrices with two axes of outputs, such as queries, keys and values."""
    check(name, dtype, num_rows, num_inputs, *out)


def test_tiles_of_rows_and_of_outputs_change_nothing(monkeypatch):
    compiled.cache_clear()
    monkeypatch.setattr(tile_sizes, "MAX_ROWS", 16)
    monkeypatch.setattr(tile_sizes, "TILE_BYTES", 128 * 256 // 2)
    check("Q4_0", "float32", 37, 256, 384)


@pytest.mark.parametrize("divided", [False, True])
def test_a_gate_and_its_other_half_are_multiplied_together(divided):
    check("Q4_0", "bfloat16", 5, 256, 2, 128, spec=replace(TPU, activation="silu", divided_axis=1 if divided else None))


def test_a_bias_is_added():
    check("Q4_1", "float32", 5, 256, 128, bias=jnp.asarray(np.random.default_rng(2).normal(size=128), jnp.float32))


def test_one_matrix_is_a_stack_of_one_layer():
    """Such as the head."""
    stack = random_stack(kept_on_tpu("Q8_0"), 256, 128)
    x = jnp.asarray(np.random.default_rng(3).normal(size=(4, 256)), jnp.bfloat16)
    alone = replace(stack, fields={name: (field[-1],) for name, field in stack.fields.items()})
    np.testing.assert_array_equal(product(x, alone, TPU, layer=0), product(x, stack, TPU))


def test_rows_do_not_depend_on_each_other():
    stack = random_stack(kept_on_tpu("Q4_0"), 256, 128)
    x = jnp.asarray(np.random.default_rng(4).normal(size=(5, 256)), jnp.bfloat16)
    healthy, broken = product(x, stack, TPU), product(x.at[1].set(jnp.nan), stack, TPU)
    assert np.isnan(broken[1]).all()
    np.testing.assert_array_equal(np.delete(broken, 1, axis=0), np.delete(healthy, 1, axis=0))


@pytest.mark.parametrize(
    ("form", "num_inputs", "num_outputs", "reason"),
    [
        *((kept_on_tpu(name), 256, 128, reason) for name, reason in REFUSED.items()),
        (with_half_bits(ints(2, 64)), 256, 128, "whose lowest 4 or 8 bits are together, not 2 of INT2-g64"),
        (with_half_bits(ints(8, 96)), 384, 128, "384 inputs are no chunks"),
        (FORMS["Q4_0"], 256, 128, r"it reads no float16 \(scales\)"),
        (kept_on_tpu("Q4_0"), 544, 128, "544 inputs are no chunks of 128, 256 or 512 for Q4_0"),
        (kept_on_tpu("Q8_0"), 96, 128, "96 inputs are no chunks"),
    ],
)
def test_what_is_not_served_is_refused_with_the_reason(form, num_inputs, num_outputs, reason):
    stack = random_stack(form, num_inputs, num_outputs)
    with pytest.raises(NotImplementedError, match=reason):
        product(jnp.zeros((1, num_inputs)), stack, TPU)


def test_other_arguments_are_refused():
    stack = random_stack(kept_on_tpu("Q8_0"), 256, 128)
    with pytest.raises(NotImplementedError, match="bfloat16 or float32, not float16"):
        product(jnp.zeros((1, 256), jnp.float16), stack, TPU)
    with pytest.raises(NotImplementedError, match="pass block=None"):
        product(jnp.zeros((1, 256)), stack, replace(TPU, block=BlockSizes(64, 64, 1)))
    apart = replace(stack, fields={name: tuple(field) for name, field in stack.fields.items()})
    with pytest.raises(NotImplementedError, match="one array of all layers"):
        product(jnp.zeros((1, 256)), apart, TPU)
