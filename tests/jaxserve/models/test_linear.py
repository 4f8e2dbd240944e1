import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.linear import Linear, OneOf, at_layer

RNG = np.random.default_rng(0)
STACK = RNG.normal(size=(3, 2, 5, 8)).astype(np.float32)
BIAS = jnp.asarray(RNG.normal(size=(2, 5)), jnp.float32)
X = jnp.asarray(RNG.normal(size=(4, 8)), jnp.float32)


@pytest.mark.parametrize("has_divided_columns", [False, True])
@pytest.mark.parametrize("form", [jnp.asarray, lambda stack: tuple(map(jnp.asarray, stack))], ids=["stack", "tuple"])
def test_a_product_is_that_of_the_layer(form, has_divided_columns):
    @jax.jit
    def multiply(leaf, index):
        return Linear(at_layer(leaf, index), BIAS, has_divided_columns=has_divided_columns)(X)

    for layer in range(3):
        expected = np.einsum("ti,aoi->tao", X, STACK[layer]) + np.asarray(BIAS)
        np.testing.assert_allclose(multiply(form(STACK), jnp.int32(layer)), expected, rtol=1e-5, atol=1e-6)


def test_a_tuple_has_no_stack():
    """Control: `at_layer` of a tuple takes nothing from it; the product does, in the branch of its layer."""
    layers = tuple(map(jnp.asarray, STACK))
    assert at_layer(layers, jnp.int32(1)) == OneOf(layers, jnp.int32(1))


def test_results_have_the_activations_dtype_and_float32_on_request():
    linear = Linear(jnp.asarray(STACK[0], jnp.bfloat16))
    x = X.astype(jnp.bfloat16)
    assert (linear(x).dtype, linear.in_float32(x).dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(linear(x), linear.in_float32(x).astype(jnp.bfloat16))
