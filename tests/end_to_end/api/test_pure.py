"""The pure functions on a real model agree with the engine."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams, pure
from jaxserve.core.errors import ConfigError
from tests.support.golden_data import checkpoint

pytestmark = pytest.mark.optimized  # without, weights take 50 s to load

NAME = "smollm2-135m-instruct"
PROMPTS = ["The capital of France is", "Once upon a time"]
NUM_TOKENS = 8


@partial(jax.jit, static_argnums=0)
def greedy(settings, params, tokens, lengths, cache):
    def step(carry, _):
        logits, cache = carry
        token = logits.argmax(-1).astype(jnp.int32)
        return pure.decode(settings, params, token, cache), token

    start = pure.prefill(settings, params, tokens, lengths, cache)
    return jax.lax.scan(step, start, length=NUM_TOKENS)[1].T


def test_a_scan_over_decode_equals_generate(real_model):
    path = real_model(NAME).weights
    model = pure.load(str(path), dtype="float32")
    assert model.tokenizer is not None
    prompts = [model.tokenizer.encode(prompt) for prompt in PROMPTS]
    tokens = np.zeros((2, 8), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    lengths = np.array([len(p) for p in prompts], np.int32)
    drawn = greedy(model.settings, model.params, tokens, lengths, pure.init_cache(model.settings, 2, 32))

    llm = LLM(str(path), dtype="float32", max_model_len=256, max_num_seqs=8, max_num_batched_tokens=32)
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    expected = [out.outputs[0].token_ids for out in llm.generate(PROMPTS, params, use_tqdm=False)]
    assert np.asarray(drawn).tolist() == expected
    assert llm.parts.runner.settings.model == model.settings


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
