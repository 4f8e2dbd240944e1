"""`prefill` and `decode` without an engine return the engine's numbers in any batch, and compose with JAX."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from tests.support.golden_data import checkpoint, goldens

prefill = jax.jit(pure.prefill, static_argnums=0, donate_argnames="cache")
decode = jax.jit(pure.decode, static_argnums=0, donate_argnames="cache")


@cache
def model(family, **options):
    return pure.load(str(checkpoint(family)), dtype="float32", **options)


@partial(jax.jit, static_argnums=(0, 5))
def greedy(settings, params, tokens, lengths, cache, num_tokens):
    """A whole greedy loop in one computation: [num_tokens, B]."""
    logits, cache = pure.prefill(settings, params, tokens, lengths, cache)

    def step(carry, _):
        logits, cache = carry
        token = logits.argmax(-1).astype(jnp.int32)
        return pure.decode(settings, params, token, cache), token

    return jax.lax.scan(step, (logits, cache), length=num_tokens)[1]


def padded(prompts, width=64):
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    return tokens, np.array([len(p) for p in prompts], np.int32)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("family", "size"), [("llama2", 1), ("llama3", 2), ("gemma3", 1), ("gemma3", 2)])
def test_a_greedy_loop_inside_one_jit_equals_transformers(family, size):
    found = model(family, tensor_parallel_size=size)
    tokens, lengths = padded([g.prompt for g in goldens(family)])
    cache = pure.init_cache(found.settings, batch_size=3, max_len=84)
    drawn = greedy(found.settings, found.params, tokens, lengths, cache, 24)
    assert np.asarray(drawn).T.tolist() == [g.greedy for g in goldens(family)]


def test_logits_after_a_prompt_equal_transformers():
    found, golden = model("gemma3"), goldens("gemma3")
    tokens, lengths = padded([g.prompt for g in golden])
    logits, cache = prefill(found.settings, found.params, tokens, lengths, pure.init_cache(found.settings, 3, 64))
    assert cache.lengths.tolist() == [1, 17, 60]
    np.testing.assert_allclose(logits, np.stack([g.logits[-1] for g in golden]), atol=5e-5)


def test_a_prompt_in_ragged_pieces_is_the_prompt_at_once():
    found, prompt = model("gemma3"), goldens("gemma3")[2].prompt
    cache = pure.init_cache(found.settings, batch_size=2, max_len=60)
    for stops in ((25, 32), (57, 50), (60, 60)):
        pieces = [prompt[done:stop] for done, stop in zip(cache.lengths.tolist(), stops, strict=True)]
        tokens, lengths = padded(pieces, width=36)
        logits, cache = prefill(found.settings, found.params, tokens, lengths, cache)
    np.testing.assert_allclose(logits, goldens("gemma3")[2].logits[[-1, -1]], atol=5e-5)


def test_rows_without_room_are_nan_and_stay_as_they_are():
    found, golden = model("llama3"), goldens("llama3")[1]
    tokens, lengths = padded([golden.prompt, golden.prompt])
    cache = pure.init_cache(found.settings, batch_size=2, max_len=19)
    logits, cache = prefill(found.settings, found.params, tokens, lengths, cache)
    # No tokens, too many for the cache, more than the row has, a negative number.
    for width, refused in ((64, [0, 17]), (1, [2, -1])):
        logits, cache = prefill(found.settings, found.params, tokens[:, :width], np.array(refused, np.int32), cache)
        assert np.isnan(logits).all()
        assert cache.lengths.tolist() == [17, 17]
    for token in golden.greedy[:2]:
        logits, cache = decode(found.settings, found.params, jnp.array([token, token]), cache)
    assert logits.argmax(-1).tolist() == [golden.greedy[2]] * 2
    before = np.array(cache.pool[:, 1:])  # without the scratch page
    logits, cache = decode(found.settings, found.params, jnp.array([1, 1]), cache)
    assert np.isnan(logits).all()
    assert cache.lengths.tolist() == [19, 19]
    np.testing.assert_array_equal(cache.pool[:, 1:], before)


def test_rows_without_room_harm_no_other():
    found, golden = model("llama3"), goldens("llama3")[1]
    tokens, lengths = padded([golden.prompt, golden.prompt])
    cache = pure.init_cache(found.settings, batch_size=2, max_len=19)
    _, cache = prefill(found.settings, found.params, tokens, lengths, cache)
    logits, cache = prefill(found.settings, found.params, tokens, np.array([2, 17], np.int32), cache)
    assert np.isnan(logits).any(axis=1).tolist() == [False, True]
    token = golden.greedy[0]
    logits, cache = decode(found.settings, found.params, jnp.array([1, token]), cache)
    assert np.isnan(logits).any(axis=1).tolist() == [True, False]
    assert int(logits[1].argmax()) == golden.greedy[1]
    assert cache.lengths.tolist() == [19, 18]


@pytest.mark.parametrize("length", [0, 1])
def test_one_column_of_tokens_is_a_prompt_too(length):
    found, golden = model("llama3"), goldens("llama3")[0]
    cache = pure.init_cache(found.settings, batch_size=1, max_len=8)
    logits, _ = prefill(found.settings, found.params, np.array([golden.prompt]), np.array([length]), cache)
    assert bool(np.isnan(logits).all()) == (length == 0)
    if length:
        np.testing.assert_allclose(logits[0], golden.logits[0], atol=1e-5)


def test_decoding_maps_over_weights():
    found, golden = model("llama3"), goldens("llama3")[0]
    scaled = jax.tree.map(lambda a: a * jnp.asarray(0.9, a.dtype), found.params)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), found.params, scaled)
    token = jnp.array(golden.prompt)

    def step(params):
        return pure.decode(found.settings, params, token, pure.init_cache(found.settings, 1, 16))[0]

    together = jax.jit(jax.vmap(step))(both)
    np.testing.assert_allclose(together[0, 0], golden.logits[0], atol=1e-5)
    np.testing.assert_allclose(together[1], jax.jit(step)(scaled), atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01


def test_a_cache_is_updated_in_place():
    found = model("llama3")
    cache = pure.init_cache(found.settings, batch_size=2, max_len=4096)
    compiled = decode.lower(found.settings, found.params, jnp.array([1, 2]), cache).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= cache.pool.nbytes
    assert memory.temp_size_in_bytes < cache.pool.nbytes // 4


@pytest.mark.parametrize(("batch_size", "max_len"), [(0, 1), (1, 0)])
def test_an_empty_cache_is_refused(batch_size, max_len):
    with pytest.raises(ValueError, match="at least 1"):
        pure.init_cache(model("llama3").settings, batch_size, max_len)
