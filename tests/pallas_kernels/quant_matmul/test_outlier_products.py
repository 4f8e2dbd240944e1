"""Products with outliers equal the reference in float64, lose less where inputs are large, and are those of codes alone
where there are none."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import SCHEMES, QTensor, encode
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, XLA_ROUNDINGS, errors
from tests.pallas_kernels.quant_matmul.test_quant_matmul import COLUMNS, INPUTS, LAYERS, product, truth

OUTLIERS = [3, 100, INPUTS - 1]
PLACES = [*OUTLIERS, INPUTS]
"""The last place has no outlier."""
LARGER = 100


def stacks(*out, dtype="bfloat16", places=PLACES):
    """(a stack with outliers, the same without, weights of its last layer). The other layers have no numbers."""
    rng, plain = np.random.default_rng(0), SCHEMES["w8a8"]
    weights = rng.normal(scale=INPUTS**-0.5, size=(LAYERS, *out, INPUTS)).astype(jnp.dtype(dtype))
    codes, scales = encode(weights.astype(np.float32))
    outliers = np.concatenate([weights, np.zeros((LAYERS, *out, 1), weights.dtype)], axis=-1)[..., places]
    scales[:-1], outliers[:-1] = np.nan, np.nan
    without = QTensor(jnp.asarray(codes), jnp.asarray(scales), plain, dtype)
    columns = np.broadcast_to(np.int32(places), (LAYERS, len(places)))
    found = replace(
        without,
        scheme=plain.with_outliers(len(places)),
        outliers=jnp.asarray(outliers),
        columns=jnp.asarray(columns),
    )
    return found, without, weights[-1].astype(np.float64)


def inputs(num_rows, dtype="bfloat16", larger=LARGER):
    x = np.random.default_rng(1).normal(size=(num_rows, INPUTS))
    x[:, OUTLIERS] *= larger
    return jnp.asarray(x, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("num_rows", "activation", "has_bias"), [(1, None, False), (5, "silu", False), (70, None, True)]
)
def test_products_equal_the_reference(dtype, num_rows, activation, has_bias):
    stack, _, _ = stacks(*((2, COLUMNS) if activation else (COLUMNS,)), dtype=dtype)
    x, spec = inputs(num_rows, dtype, larger=3), MatmulSpec(activation)
    bias = {"bias": jnp.asarray(np.random.default_rng(2).normal(size=COLUMNS), dtype) if has_bias else None}
    expected, bound = truth(x, stack, spec, **bias), XLA_ROUNDINGS * BOUNDS[dtype]
    assert errors(product(x, stack, spec, **bias), expected).max() <= bound
    apart = replace(stack, codes=tuple(stack.codes))
    assert errors(product(x, apart, spec, **bias), expected).max() <= bound
    assert np.isnan(product(x, stack, spec, layer=0, **bias)).all(), "the control: other layers have no numbers"
    wrong = replace(stack, columns=stack.columns.at[:, 0].set(4))
    assert errors(product(x, wrong, spec, **bias), expected).max() > 3 * bound, "the control: another column"


def test_large_inputs_cost_the_others_less():
    stack, without, weights = stacks(COLUMNS, dtype="float32")
    x = inputs(32, "float32")
    expected = np.asarray(x, np.float64) @ weights.T

    def error(found):
        return np.linalg.norm(found - expected) / np.linalg.norm(expected)

    assert error(product(x, stack)) < 0.05 * error(product(x, without))
    rest = jnp.asarray(np.delete(np.arange(INPUTS), OUTLIERS))
    small = jnp.zeros_like(x).at[:, rest].set(x[:, rest])
    others = np.asarray(small, np.float64) @ weights.T
    of_others = np.linalg.norm(product(small, stack) - others)
    assert np.linalg.norm(product(x, stack) - expected) < 1.01 * of_others, "outliers add no error"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_without_outliers_results_have_the_same_bits(dtype):
    for activation in (None, "silu"):
        out = (2, COLUMNS) if activation else (COLUMNS,)
        stack, without, _ = stacks(*out, dtype=dtype, places=[INPUTS, INPUTS])
        x, spec = inputs(7, dtype), MatmulSpec(activation)
        np.testing.assert_array_equal(product(x, stack, spec), product(x, without, spec))
        some, _, _ = stacks(*out, dtype=dtype)
        assert (product(x, some, spec) != product(x, without, spec)).any(), "the control"


def test_a_row_does_not_depend_on_others():
    stack, _, _ = stacks(COLUMNS)
    x = inputs(8)
    found = product(x, stack)
    for scale in (0, 1e-3, 1e3):
        others = product(x.at[1:].multiply(scale), stack)
        np.testing.assert_array_equal(others[0], found[0])
        assert (others[1:] != found[1:]).any(), "the control: theirs are others"


def test_tokens_of_no_numbers_give_none():
    stack, _, _ = stacks(COLUMNS)
    x = np.array(inputs(4, "float32"))
    x[0], x[1, OUTLIERS[0]], x[2, 5] = 0, np.nan, np.inf
    found = product(jnp.asarray(x), stack)
    assert (found[0] == 0).all()
    assert not np.isfinite(found[1:3]).any()
    assert np.isfinite(found[3]).all()


@pytest.mark.parametrize(("out", "axis", "activation"), [((2, 128), 1, "silu"), ((128,), -1, None), ((128,), 0, None)])
def test_devices_together_give_the_result(out, axis, activation):
    """Of devices that divide the inputs the outliers may all be those of one."""
    stack, _, _ = stacks(*out)
    x, spec = inputs(5, larger=3), MatmulSpec(activation, divided_axis=axis)
    expected = truth(x, stack, spec)
    mesh = Mesh(np.array(jax.devices()[:2]).reshape(1, -1), ("data", "tensor"))
    rank = len(out) + 2
    codes = PartitionSpec(*("tensor" if i == (axis + 1 or rank - 1) else None for i in range(rank)))
    rows = PartitionSpec(*codes[:-1])
    place = replace(stack, codes=codes, scales=rows, outliers=rows, columns=PartitionSpec())
    divided = jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), stack, place)
    of_x = PartitionSpec(None, "tensor" if axis == -1 else None)
    with jax.set_mesh(mesh):
        found = product(jax.device_put(x, NamedSharding(mesh, of_x)), divided, spec)
    assert errors(found, expected).max() <= 2 * XLA_ROUNDINGS * BOUNDS["bfloat16"]
