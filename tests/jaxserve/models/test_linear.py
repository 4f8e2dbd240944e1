import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.linear import Linear, OfLayer, at_layer, whole

RNG = np.random.default_rng(0)
STACK = RNG.normal(size=(3, 2, 5, 8)).astype(np.float32)
BIAS = jnp.asarray(RNG.normal(size=(3, 2, 5)), jnp.float32)
X = jnp.asarray(RNG.normal(size=(4, 8)), jnp.float32)


@pytest.mark.parametrize("has_divided_columns", [False, True])
@pytest.mark.parametrize("form", [jnp.asarray, lambda stack: tuple(map(jnp.asarray, stack))], ids=["stack", "tuple"])
def test_a_product_is_that_of_the_layer(form, has_divided_columns):
    @jax.jit
    def multiply(leaf, index):
        weight, bias = at_layer(leaf, index), at_layer(BIAS, index)
        return Linear(weight, bias, has_divided_columns=has_divided_columns)(X)

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
