"""Products of packed blocks equal the reference in float64, and decode some rows at a time."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul import cpu_products
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul import block_rows
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.pallas_kernels.block_forms.test_ggml_forms import blocks_of
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, XLA_ROUNDINGS, errors
from tests.pallas_kernels.quant_matmul.block_stacks import FLOAT_FORMS, INT_FORMS, TABLE_FORMS, block_stack

INPUTS, COLUMNS, LAYERS = 512, 90, 3
OTHERS = FLOAT_FORMS | TABLE_FORMS | INT_FORMS


def packed(name, *out):
    """A stack of layers of which the last one has numbers."""
    if name in OTHERS:
        return block_stack(OTHERS[name], LAYERS, out, INPUTS)
    raw = blocks_of(name, (LAYERS * int(np.prod(out)), INPUTS))
    fields = {key: jnp.asarray(values.reshape(LAYERS, *out, -1)) for key, values in GGML_FORMS[name].split(raw).items()}
    for key, field in fields.items():
        if field.dtype == jnp.float16:
            fields[key] = field.at[:-1].set(jnp.nan)
        elif key == "exponents":  # infinite weights of both signs
            fields[key] = field.at[:-1].set(255)
    return BlockTensor(fields, GGML_FORMS[name], "bfloat16")


def apart(stack):
    return replace(stack, fields={name: tuple(field) for name, field in stack.fields.items()})


def product(x, stack, spec, layer=LAYERS - 1, **arrays):
    return np.asarray(jax.jit(partial(quant_matmul, spec=spec))(x, stack, jnp.int32(layer), **arrays), np.float32)


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("name", "dtype", "num_rows", "activation"),
    [
        *((name, "bfloat16", 1, None) for name in GGML_FORMS),
        *((name, "float32", 5, "silu") for name in GGML_FORMS | OTHERS),
        *((name, "bfloat16", 70, None) for name in GGML_FORMS),
    ],
)
def test_products_equal_the_reference(monkeypatch, name, dtype, num_rows, activation):
    """In tiles of 24 rows, or of 12 in another dtype or with a gate, of which the last one has fewer."""
    tile_bytes = 24 * INPUTS * jnp.dtype(dtype).itemsize
    monkeypatch.setattr(block_rows, "max_tile_bytes", lambda: tile_bytes)
    rng = np.random.default_rng(1)
    stack = packed(name, *((2, COLUMNS) if activation else (COLUMNS,)))
    x = jnp.asarray(rng.normal(size=(num_rows, INPUTS)), dtype)
    spec = MatmulSpec(activation)
    with jax.enable_x64(True):
        exact = replace(spec, backend="reference", out_dtype=jnp.dtype(jnp.float64))
        expected = np.asarray(quant_matmul(jnp.asarray(x, jnp.float64), stack, jnp.int32(LAYERS - 1), exact))
    # Weights are rounded, too, as dense ones are.
    bound = 2 * XLA_ROUNDINGS * BOUNDS[dtype]
    assert errors(product(x, stack, spec), expected).max() <= bound
    assert errors(product(x, apart(stack), spec), expected).max() <= bound
    assert np.isnan(product(x, stack, spec, layer=0)).all(), "the control: other layers have no scales"


RULES = cpu_products.AMX, cpu_products.ZEN4, cpu_products.OTHER


@pytest.mark.parametrize(
    ("rule", "dtypes"), [*zip(RULES, ("bfloat16 bfloat16", "float32 bfloat16", "float32 float32"), strict=True)]
)
def test_tiles_are_rounded_where_that_pays(monkeypatch, rule, dtypes):
    """For 15 tokens, and for 16."""
    monkeypatch.setattr(block_rows, "cpu_rule", lambda: rule)
    assert [block_rows.tile_dtype(count, "bfloat16") for count in (15, 16)] == dtypes.split()
    assert block_rows.tile_dtype(16, "float32") == "float32"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("rule", "num_rows"),
    [*((rule, 8) for rule in RULES), (cpu_products.ZEN4, 16)],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.parametrize("name", ["Q8_0", "Q5_1", "INT3-g128", "FP8-g128", "NF4-g64 nested"])
def test_every_processor_computes_them(monkeypatch, rule, name, num_rows):
    for module in (block_rows, cpu_products):
        monkeypatch.setattr(module, "cpu_rule", lambda: rule)
    test_products_equal_the_reference(monkeypatch, name, "bfloat16", num_rows, "silu")


def test_divided_columns_change_nothing():
    stack = packed("Q4_1", 2, COLUMNS)
    x = jnp.asarray(np.random.default_rng(2).normal(size=(4, INPUTS)), jnp.float32)
    spec = MatmulSpec("silu")
    np.testing.assert_allclose(
        product(x, stack, replace(spec, divided_axis=1)), product(x, stack, spec), rtol=1e-5, atol=1e-5
    )


def test_inputs_are_brought_into_the_order_of_the_layer():
    rng = np.random.default_rng(3)
    orders = np.stack([rng.permutation(INPUTS) for _ in range(LAYERS)]).astype(np.int32)
    stack, x = packed("Q4_0", COLUMNS), jnp.asarray(rng.normal(size=(4, INPUTS)), jnp.float32)
    found = product(x, replace(stack, order=jnp.asarray(orders)), MatmulSpec())
    np.testing.assert_array_equal(found, product(x[:, orders[-1]], stack, MatmulSpec()))
    assert np.abs(found - product(x[:, orders[0]], stack, MatmulSpec())).max() > 1, "the control"


def test_no_decoded_weights_are_made(monkeypatch):
    monkeypatch.setattr(block_rows, "max_tile_bytes", lambda: 2**14)
    stack = apart(packed("Q4_K", COLUMNS))
    x = jnp.zeros((8, INPUTS), jnp.bfloat16)

    form = stack.form

    def decoding(x, stack, layer):
        decoded = form.decode_places({name: fields[-1] for name, fields in stack.fields.items()}, x.dtype)
        return sum(form.at_place(x, place) @ values.T for place, values in enumerate(decoded))

    def compiled(function):
        return jax.jit(function).lower(x, stack, jnp.int32(LAYERS - 1)).compile().as_text()

    widths = INPUTS, INPUTS // form.num_places
    names = [f"{kind}[{COLUMNS},{width}]" for kind in ("bf16", "f32") for width in widths]
    assert any(name in compiled(decoding) for name in names), "the control"
    program = compiled(partial(quant_matmul, spec=MatmulSpec()))
    assert not any(name in program for name in names)
