import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.linear import Linear, OfLayer, Segments, at_layer, whole

RNG = np.random.default_rng(0)
STACK = RNG.normal(size=(3, 2, 5, 8)).astype(np.float32)
BIAS = jnp.asarray(RNG.normal(size=(3, 2, 5)), jnp.float32)
X = jnp.asarray(RNG.normal(size=(4, 8)), jnp.float32)


@pytest.mark.parametrize("divided_axis", [None, 1])
@pytest.mark.parametrize("form", [jnp.asarray, lambda stack: tuple(map(jnp.asarray, stack))], ids=["stack", "tuple"])
def test_a_product_is_that_of_the_layer(form, divided_axis):
    @jax.jit
    def multiply(leaf, index):
        weight, bias = at_layer(leaf, index), at_layer(BIAS, index)
        return Linear(weight, bias, divided_axis=divided_axis)(X)

    for layer in range(3):
        expected = np.einsum("ti,aoi->tao", X, STACK[layer]) + np.asarray(BIAS[layer])
        np.testing.assert_allclose(multiply(form(STACK), jnp.int32(layer)), expected, rtol=1e-5, atol=1e-6)


def test_nothing_of_a_matrix_is_taken_before_its_product():
    for leaf in (jnp.asarray(STACK), tuple(map(jnp.asarray, STACK))):
        assert at_layer(leaf, jnp.int32(1)) == OfLayer(leaf, jnp.int32(1))
    np.testing.assert_array_equal(at_layer(jnp.asarray(STACK[:, 0, 0]), jnp.int32(1)), STACK[1, 0, 0])


def test_results_have_the_activations_dtype_and_float32_on_request():
    linear = Linear(whole(jnp.asarray(STACK[0], jnp.bfloat16)))
    x = X.astype(jnp.bfloat16)
    rounded, exact = linear(x), linear.in_dtype(x, jnp.float32)
    assert (rounded.dtype, exact.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(rounded, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize(("axis", "activation"), [(1, None), (1, "silu"), (0, "silu")])
def test_segments_are_one_product(axis, activation):
    """Of an axis that is cut into two matrices, such as a gate and the other half."""
    parts = np.split(STACK[0], [1 if axis == 0 else 3], axis)
    whole_one = Linear(whole(jnp.asarray(STACK[0])), activation=activation)
    cut = Segments(tuple(whole(jnp.asarray(part)) for part in parts), axis)
    np.testing.assert_allclose(whole_one._replace(weight=cut)(X), whole_one(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_adapters_of_rows_act_as_weights_that_contain_them(activation):
    """Before the activation, of each row its own: rows 0 and 2 have the first adapter, row 1 the second, row 3 none."""
    down = RNG.normal(size=(2, 3, 8)).astype(np.float32)
    up = RNG.normal(size=(2, 2, 5, 3)).astype(np.float32)
    adapter_of_row = [0, 1, 0, None]
    chosen = np.eye(2, dtype=np.float32)[[0, 1, 0, 0]] * np.float32([1, 1, 1, 0])[:, None]

    def adapter(x):
        return jnp.einsum("ts,sri,saor,ti->tao", chosen, down, up, x)

    linear = Linear(whole(jnp.asarray(STACK[0])), OfLayer(BIAS, jnp.int32(0)), adapter=adapter)
    found = linear._replace(activation=activation, bias=None if activation else linear.bias)(X)
    for row, index in enumerate(adapter_of_row):
        merged = STACK[0] if index is None else STACK[0] + np.einsum("aor,ri->aoi", up[index], down[index])
        alone = Linear(whole(jnp.asarray(merged)), None if activation else linear.bias, activation)
        np.testing.assert_allclose(found[row], alone(X)[row], rtol=1e-4, atol=1e-5)
