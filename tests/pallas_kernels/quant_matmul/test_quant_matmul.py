"""Products of packed weights equal the reference in float64, and make no array of decoded weights."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.matmul import cpu_products
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import ALL_SCHEMES, FP8, SCHEMES, QTensor, encode
from pallas_kernels.quant_matmul.api import quant_matmul
from pallas_kernels.quant_matmul.coded_tokens import code_tokens
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, XLA_ROUNDINGS, errors

INPUTS, COLUMNS, LAYERS = 192, 320, 3
PLAIN = MatmulSpec()


def packed(scheme, *out, seed=0):
    """A stack of layers of which the last one has numbers; and these, decoded."""
    rng = np.random.default_rng(seed)
    codes, scales = encode(
        rng.normal(scale=INPUTS**-0.5, size=(LAYERS, *out, INPUTS)).astype(np.float32), ALL_SCHEMES[scheme]
    )
    decoded = codes[-1].astype(np.float64) * scales[-1][..., None]
    scales[:-1] = np.nan
    return QTensor(jnp.asarray(codes), jnp.asarray(scales), ALL_SCHEMES[scheme], "bfloat16"), decoded


def product(x, stack, spec=PLAIN, layer=LAYERS - 1, **arrays):
    return np.asarray(jax.jit(partial(quant_matmul, spec=spec))(x, stack, jnp.int32(layer), **arrays), np.float32)


def truth(x, stack, spec, **arrays):
    with jax.enable_x64(True):
        spec = replace(spec, backend="reference", out_dtype=jnp.dtype(jnp.float64))
        return np.asarray(quant_matmul(jnp.asarray(x, jnp.float64), stack, jnp.int32(LAYERS - 1), spec, **arrays))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("num_rows", "activation", "has_bias"), [(1, None, False), (5, "silu", False), (70, None, True)]
)
def test_products_equal_the_reference(scheme, dtype, num_rows, activation, has_bias):
    rng = np.random.default_rng(1)
    stack, _ = packed(scheme, *((2, COLUMNS) if activation else (COLUMNS,)))
    x = jnp.asarray(rng.normal(size=(num_rows, INPUTS)), dtype)
    bias = {"bias": jnp.asarray(rng.normal(size=COLUMNS), dtype) if has_bias else None}
    spec = MatmulSpec(activation)
    expected, bound = truth(x, stack, spec, **bias), XLA_ROUNDINGS * BOUNDS[dtype]
    assert errors(product(x, stack, spec, **bias), expected).max() <= bound
    apart = replace(stack, codes=tuple(stack.codes))
    assert errors(product(x, apart, spec, **bias), expected).max() <= bound
    assert np.isnan(product(x, stack, spec, layer=0, **bias)).all(), "the control: other layers have no scales"


@pytest.mark.parametrize("rule", [cpu_products.AMX, cpu_products.ZEN4, cpu_products.OTHER], ids=lambda rule: rule.name)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_processor_computes_them(monkeypatch, rule, scheme):
    monkeypatch.setattr(cpu_products, "cpu_rule", lambda: rule)
    for num_rows in (1, 8):
        test_products_equal_the_reference(scheme, "bfloat16", num_rows, "silu", has_bias=False)


def test_codes_alone_make_the_difference_to_dense_weights():
    """The products of decoded weights, in float32; of coded inputs the error is larger, and bounded."""
    x = np.random.default_rng(2).normal(size=(16, INPUTS)).astype(np.float32)
    (weights_only, decoded), (coded, _) = packed("int8", COLUMNS), packed("w8a8", COLUMNS)
    expected = x.astype(np.float64) @ decoded.T
    assert errors(product(jnp.asarray(x), weights_only), expected).max() < 1e-6
    assert 1e-4 < errors(product(jnp.asarray(x), coded), expected).max() < 1e-2


def test_sums_of_codes_are_exact():
    """Sums beyond 2^24, in which float32 would lose units."""
    rng = np.random.default_rng(3)
    codes = rng.integers(100, 128, (1, 8, 14336)).astype(np.int8)
    inputs = rng.integers(100, 127, (4, 14336)).astype(np.float32)
    inputs[:, 0] = 127  # so that the scale of each token is 1
    stack = QTensor(jnp.asarray(codes), jnp.ones((1, 8), jnp.float32), SCHEMES["w8a8"], "float32")
    expected = inputs.astype(np.int64) @ codes[0].astype(np.int64).T
    assert expected.min() > 2**24
    found = product(jnp.asarray(inputs), stack, layer=0)
    assert (found == expected.astype(np.float32)).all()


@pytest.mark.parametrize(("num_parts", "bound"), [(1, 1 / 254), (2, 1 / 254**2), (3, 2**-22)])
def test_parts_of_activations_leave_as_little_as_they_say(num_parts, bound):
    x = np.random.default_rng(4).normal(size=(50, INPUTS)).astype(np.float32)
    parts, scales = code_tokens(jnp.asarray(x), num_parts, SCHEMES["int8"])
    found = sum(part / 254.0**i for i, part in enumerate(np.asarray(parts, np.float64).reshape(num_parts, *x.shape)))
    left = np.abs(found * np.asarray(scales, np.float64)[:, None] - x).max(axis=1) / np.abs(x).max(axis=1)
    assert left.max() <= bound * 1.01


def test_codes_of_8_bit_floats_are_within_half_a_step():
    """Three bits follow the first one; the smallest step is 2^-9."""
    x = np.random.default_rng(6).normal(size=(50, INPUTS)).astype(np.float32)
    for codes, scales in (encode(x, FP8), map(np.asarray, code_tokens(jnp.asarray(x), 1, FP8))):
        scaled = x / scales[:, None].astype(np.float64)
        assert codes.dtype == jnp.float8_e4m3fn
        assert (np.abs(codes.astype(np.float64)).max(axis=1) == 448).all()
        assert (np.abs(codes.astype(np.float64) - scaled) <= np.maximum(np.abs(scaled) / 16, 2**-10) * 1.0001).all()


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_tokens_of_zeros_give_zeros_and_of_no_numbers_none(scheme):
    stack, _ = packed(scheme, COLUMNS)
    x = np.zeros((4, INPUTS), np.float32)
    x[1, 3], x[2, 3], x[3, 3] = np.inf, np.nan, 1
    found = product(jnp.asarray(x), stack)
    assert (found[0] == 0).all()
    assert not np.isfinite(found[1:3]).any()
    assert np.isfinite(found[3]).all()


def test_rows_are_coded_within_half_a_step():
    rng = np.random.default_rng(5)
    rows = (rng.normal(size=(40, 7, INPUTS)) * 10.0 ** rng.integers(-20, 20, (40, 7, 1))).astype(np.float32)
    rows[3, 2] = 0
    codes, scales = encode(rows)
    assert codes.dtype == np.int8
    assert codes.min() == -127
    assert (np.abs(codes).max(axis=-1)[scales > 0] == 127).all(), "the largest value of a row has the largest code"
    error = np.abs(codes.astype(np.float64) * scales[..., None] - rows)
    assert (error <= scales[..., None] * 0.5001).all()
    rows[0, 0, 0] = np.nan
    assert np.isnan(encode(rows)[1][0, 0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_decoded_weights_are_made(scheme):
    stack, _ = packed(scheme, COLUMNS)
    stack = replace(stack, codes=tuple(stack.codes))

    def decoding(x, stack, layer):
        decoded = stack.codes[-1].astype(jnp.bfloat16) * stack.scales[layer].astype(jnp.bfloat16)[:, None]
        return jax.lax.dot_general(x, decoded, (((1,), (1,)), ((), ())))

    def compiled(function):
        x = jnp.zeros((8, INPUTS), jnp.bfloat16)
        return jax.jit(function).lower(x, stack, jnp.int32(LAYERS - 1)).compile().as_text()

    decoded = [
        f"{dtype}[{shape}]" for dtype in ("bf16", "f32") for shape in (f"{COLUMNS},{INPUTS}", f"{INPUTS},{COLUMNS}")
    ]
    assert any(name in compiled(decoding) for name in decoded), "the control"
    program = compiled(partial(quant_matmul, spec=PLAIN))
    assert not any(name in program for name in decoded)


def test_blocks_are_refused():
    stack, _ = packed("int8", COLUMNS)
    with pytest.raises(NotImplementedError, match="it has no blocks"):
        product(jnp.zeros((1, INPUTS)), stack, MatmulSpec(block=BlockSizes(64, 64, 1)))
