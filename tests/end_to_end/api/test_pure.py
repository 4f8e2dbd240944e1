"""The pure functions on a real model agree with transformers."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from jaxserve.core.errors import ConfigError
from scripts.proofs.parity import read_goldens
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import tiny_engine

NAME = "smollm2-135m-instruct"
MAX_PROMPT, NUM_TOKENS = 24, 16


@partial(jax.jit, static_argnums=0)
def greedy(settings, params, tokens, lengths, cache):
    def step(carry, _):
        logits, cache = carry
        token = logits.argmax(-1).astype(jnp.int32)
        return pure.decode(settings, params, token, cache), token

    start = pure.prefill(settings, params, tokens, lengths, cache)
    return jax.lax.scan(step, start, length=NUM_TOKENS)[1].T


@pytest.mark.optimized  # without, weights take 50 s to load
def test_a_scan_over_decode_equals_transformers(real_model):
    model = pure.load(str(real_model(NAME).weights), dtype="float32")
    assert model.tokenizer is not None
    prompts, golden = read_goldens(NAME)
    chosen = [i for i, prompt in enumerate(prompts) if 4 < len(prompt) <= MAX_PROMPT][:4]
    assert len({len(prompts[i]) for i in chosen}) > 1
    tokens = np.zeros((len(chosen), MAX_PROMPT), np.int32)
    for row, i in zip(tokens, chosen, strict=True):
        row[: len(prompts[i])] = prompts[i]
    lengths = np.array([len(prompts[i]) for i in chosen], np.int32)
    cache = pure.init_cache(model.settings, len(chosen), MAX_PROMPT + NUM_TOKENS)
    drawn = greedy(model.settings, model.params, tokens, lengths, cache)
    assert np.asarray(drawn).tolist() == golden["tokens"][chosen, :NUM_TOKENS].tolist()


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
