"""An EAGLE-3 draft is trained on what it reads when it drafts, and learns the model's likeliest tokens."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from jaxserve.core.errors import ConfigError
from jaxserve.train_draft.eagle_loss import DECAY, EagleGuesses
from jaxserve.train_draft.own_texts import OwnTexts
from jaxserve.train_draft.train_eagle import first_weights, make_draft, train_eagle
from jaxserve.train_draft.training_loop import TrainingPlan
from tests.support.eagle_drafts import answers, prompts, random_draft
from tests.support.tiny_engines import tiny_engine

pytestmark = pytest.mark.usefixtures("as_optax_adds")

DEPTH = 3
PLAN = TrainingPlan(depth=DEPTH, learning_rate=0.01, texts_per_step=4, epochs=1000, max_steps=50, seed=0)


@pytest.fixture(scope="module")
def model():
    llm = tiny_engine("llama3")
    return llm.parts.runner.settings.model, llm.parts.runner.params


@pytest.mark.thorough
def test_outputs_of_each_depth_are_those_of_drafts(model):
    """Written out: of depth d, the token is read after d tokens that were read with the draft's own outputs."""
    naive = random_draft("llama3", 6)
    settings, params = model
    tokens = jnp.int32([[5, 9, 7, 30, 2, 8, 1], [3, 3, 60, 41, 7, 7, 100]])
    _, taps = pure.forward(settings, params, tokens, layers=naive.config.tap_layers)
    flat = taps.reshape(len(taps), -1, taps.shape[-1])
    guesses = EagleGuesses(settings, naive.config, naive.vocabulary, DEPTH)
    found = guesses.unrolled(naive.draft, params, tokens, flat)
    for row, text in enumerate(tokens.tolist()):
        features = naive.features(text)
        for depth, outputs in enumerate(found):
            for place in range(depth, len(text)):
                before = features[: place - depth + 1]
                for end in range(place - depth + 1, place + 1):
                    before = np.concatenate([before, naive.output(text[:end], before)[None]])
                expected = naive.output(text[: place + 1], before)
                np.testing.assert_allclose(outputs[row, place], expected, atol=2e-4)


@pytest.mark.thorough
def test_loss_and_ranks_of_one_text(model):
    """Written out, for a vocabulary that lacks some of the tokens."""
    naive = random_draft("llama3", 60)
    settings, params = model
    tokens = jnp.int32([[5, 9, 7, 30, 2, 8, 1]])
    is_own = jnp.asarray([[False, False, False, True, True, True, True]])
    guesses = EagleGuesses(settings, naive.config, naive.vocabulary.astype(np.int32), DEPTH)
    total, by_depth = guesses.loss(naive.draft, params, tokens, is_own)
    hidden, taps = pure.forward(settings, params, tokens, layers=naive.config.tap_layers)
    logits = np.asarray(pure.logits(settings, params, hidden)[0])
    outputs = guesses.unrolled(naive.draft, params, tokens, taps[:, 0])
    expected, ranks = list[float](), list[list[int]]()
    for of_depth in outputs:
        losses, found = list[float](), list[int]()
        for place in range(2, 6):
            logprobs = naive.log_probabilities(np.asarray(of_depth[0, place], np.float64))
            wanted = np.exp(jax.nn.log_softmax(logits[place, naive.vocabulary]))
            if int(tokens[0, place + 1]) in naive.vocabulary:
                losses.append(-float(wanted @ logprobs))
            following = np.flatnonzero(naive.vocabulary == int(tokens[0, place + 1]))
            found += [int(np.sum(logprobs > logprobs[i])) for i in following]
        expected.append(float(np.mean(losses)) if losses else 0.0)
        ranks.append(found)
    np.testing.assert_allclose(by_depth, expected, rtol=1e-4)
    np.testing.assert_allclose(total, sum(DECAY**i * loss for i, loss in enumerate(expected)), rtol=1e-4)
    counts, totals = guesses.rank_counts(naive.draft, params, tokens, is_own)
    assert counts.tolist() == [[found.count(rank) for rank in range(counts.shape[1])] for found in ranks]
    assert totals.tolist() == [4] * DEPTH


def greedy_texts():
    """A greedy answer again and again, which a draft can know."""
    text = [*prompts()[0], *answers()[0]]
    tokens = np.tile(np.int32(text), (24, 1))
    return OwnTexts(tokens, np.full(24, len(prompts()[0]), np.int32), np.full(24, len(text), np.int32))


def test_a_draft_learns_what_the_model_would_say(model, tmp_path):
    settings, params = model
    sharp = params | {"final_norm": 8 * params["final_norm"]}  # a random model is sure of nothing
    draft = make_draft(settings.config, greedy_texts(), 64)
    trained = train_eagle(settings, sharp, draft, greedy_texts(), PLAN, tmp_path, lambda done, total: None)
    assert trained.losses.shape == (50, DEPTH)
    assert (trained.losses[-1] < [0.9, 0.5, 0.5] * trained.losses[0]).all()
    assert min(share[0] for share in trained.shares) > 0.8


def test_a_draft_begins_with_parts_of_its_model(model):
    settings, params = model
    draft = make_draft(settings.config, greedy_texts(), 64)
    assert draft.config.tap_layers == (0, 1, 2)
    weights = first_weights(settings, params, draft, 0)
    head = params["embed" if settings.config.is_tied else "lm_head"]
    np.testing.assert_array_equal(weights["lm_head"][:64], head[draft.vocabulary])
    own, (stack,) = weights["layers"]["global"], settings.config.stacks
    np.testing.assert_array_equal(own["down"][0], params["layers"][stack.name]["down"][-1])
    deep = make_draft(replace(settings.config, layer_stacks=(0,) * 30), greedy_texts(), 64)
    assert deep.config.tap_layers == (2, 15, 27)
    with pytest.raises(ConfigError, match="reads 3 layers, the model has 2"):
        make_draft(replace(settings.config, layer_stacks=(0, 0)), greedy_texts(), 64)
