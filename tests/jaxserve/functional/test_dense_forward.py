"""`forward` returns the logits and hidden states of transformers, and its gradient is the slope of the loss."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from jaxserve.functional import dense_attention
from tests.support.golden_data import FAMILIES, FOLDER, checkpoint, goldens

forward = jax.jit(pure.forward, static_argnums=0, static_argnames="layers")
to_logits = jax.jit(pure.logits, static_argnums=0)


@cache
def model(family, **options):
    return pure.load(str(checkpoint(family)), dtype="float32", **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_whole_texts_equal_transformers(family):
    found, golden = model(family), goldens(family)[2]
    hidden, taps = forward(found.settings, found.params, np.array([golden.prompt, golden.prompt[::-1]]))
    assert taps.shape == (0, 2, 60, found.config.d_model)
    logits = to_logits(found.settings, found.params, hidden[0])
    np.testing.assert_allclose(logits, golden.logits, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2])
def test_taps_are_what_transformers_calls_hidden_states(size):
    found = model("gemma3", tensor_parallel_size=size)
    golden = np.load(FOLDER / "hidden_states.npz")["gemma3"]
    hidden, taps = forward(found.settings, found.params, np.array([goldens("gemma3")[1].prompt]), layers=(0, 7, 3))
    np.testing.assert_allclose(taps[:, 0], golden[[0, 7, 3]], atol=1e-4)
    np.testing.assert_allclose(hidden[0], golden[-1], atol=1e-4)


@pytest.mark.parametrize("layers", [(3,), (-1,), (1, 1)])
def test_layers_that_are_not_there_are_refused(layers):
    found = model("llama3")
    with pytest.raises(ValueError, match="0 to 2"):
        pure.forward(found.settings, found.params, jnp.zeros((1, 4), jnp.int32), layers=layers)


def test_blocks_of_queries_change_nothing(monkeypatch):
    found, golden = model("gemma3"), goldens("gemma3")[2]
    monkeypatch.setattr(dense_attention, "BLOCK", 16)
    hidden, _ = jax.jit(pure.forward, static_argnums=0)(found.settings, found.params, np.array([golden.prompt]))
    np.testing.assert_allclose(to_logits(found.settings, found.params, hidden[0]), golden.logits, atol=5e-5)


def loss(settings, tokens, params):
    """Mean cross entropy of each token after those before it."""
    hidden, _ = pure.forward(settings, params, tokens[:, :-1])
    logprobs = jax.nn.log_softmax(pure.logits(settings, params, hidden))
    return -jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=-1).mean()


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("family", "size"), [("llama3", 1), ("gemma3", 2)])
def test_the_gradient_is_finite_and_is_the_slope(family, size):
    found = model(family, tensor_parallel_size=size)
    tokens = jnp.array([goldens(family)[2].prompt[:24], goldens(family)[2].prompt[24:48]])
    of = partial(loss, found.settings, tokens)
    gradient = jax.jit(jax.grad(of))(found.params)
    leaves, tree = jax.tree.flatten(gradient)

    @jax.jit
    def moved(distances):
        return of(jax.tree.map(lambda a, g, d: a + d * g, found.params, gradient, jax.tree.unflatten(tree, distances)))

    for i, leaf in enumerate(leaves):
        # Along one leaf's gradient at a time, by a step that should change the loss by 0.01 in total.
        steepness = float((leaf * leaf).sum())
        assert 0 < steepness < np.inf
        step = np.float32(0.005 / steepness) * np.eye(len(leaves), dtype=np.float32)[i]
        np.testing.assert_allclose(moved([*step]) - moved([*-step]), 0.01, rtol=0.02, err_msg=str(leaf.shape))
