"""The pure functions agree with transformers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from jaxserve.core.errors import ConfigError
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import tiny_engine

NUM_TOKENS = 16


@partial(jax.jit, static_argnums=0)
def greedy(settings, params, tokens, lengths, cache):
    def step(carry, _):
        logits, cache = carry
        token = logits.argmax(-1).astype(jnp.int32)
        return pure.decode(settings, params, token, cache), token

    start = pure.prefill(settings, params, tokens, lengths, cache)
    return jax.lax.scan(step, start, length=NUM_TOKENS)[1].T


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_a_scan_over_decode_equals_transformers(family):
    model = pure.load(str(checkpoint(family)), dtype="float32")
    chosen = goldens(family)
    lengths = np.array([len(golden.prompt) for golden in chosen], np.int32)
    assert len(set(lengths)) > 1
    tokens = np.zeros((len(chosen), max(lengths)), np.int32)
    for row, golden in zip(tokens, chosen, strict=True):
        row[: len(golden.prompt)] = golden.prompt
    cache = pure.init_cache(model.settings, len(chosen), int(max(lengths)) + NUM_TOKENS)
    drawn = greedy(model.settings, model.params, tokens, lengths, cache)
    assert np.asarray(drawn).tolist() == [golden.greedy[:NUM_TOKENS] for golden in chosen]


def test_settings_are_those_of_an_engine():
    model = pure.load(str(checkpoint("llama3")), dtype="float32")
    assert tiny_engine("llama3").parts.runner.settings.model == model.settings


@pytest.mark.parametrize("option", ["max_num_seqs", "num_pages", "memory_utilization"])
def test_options_of_an_engine_are_refused_by_name(option):
    with pytest.raises(ConfigError, match=f"{option} is an option of engines"):
        pure.load(str(checkpoint("llama3")), **{option: 2 if option != "memory_utilization" else 0.5})


def test_a_context_beyond_the_models_is_refused():
    with pytest.raises(ConfigError, match="max_model_len=100000 is more than the model's context of"):
        pure.load(str(checkpoint("llama3")), max_model_len=100_000)


def test_random_weights_of_a_configuration_are_accepted():
    one, other = (pure.load(str(checkpoint("llama3")), load_format="dummy", seed=seed) for seed in (1, 2))
    assert one.config == other.config
    assert one.tokenizer is None
    assert not np.array_equal(one.params["embed"], other.params["embed"])
