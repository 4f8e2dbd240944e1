"""Medusa heads learn what comes after the next token, and a run goes on where it was interrupted."""

from dataclasses import replace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, pure
from jaxserve.core.errors import ConfigError
from jaxserve.train_draft.learned_positions import learned_positions
from jaxserve.train_draft.learned_vocabulary import frequent_tokens
from jaxserve.train_draft.medusa_loss import DECAY, MedusaGuesses
from jaxserve.train_draft.own_texts import FILE, OwnTexts, own_texts
from jaxserve.train_draft.train_medusa import hidden_states, train_medusa
from jaxserve.train_draft.training_loop import SAVED_EVERY, TrainingPlan
from jaxserve.train_draft.training_state import TrainingState
from tests.support.tiny_engines import tiny_engine

pytestmark = pytest.mark.usefixtures("as_optax_adds")

PLAN = TrainingPlan(depth=2, learning_rate=0.02, texts_per_step=4, epochs=1000, max_steps=50, seed=0)


@pytest.fixture(scope="module")
def model():
    llm = tiny_engine("llama3")
    return llm.parts.runner.settings.model, llm.parts.runner.params


def counting_texts():
    """Texts in which each token is one more than the one before: all heads can be right."""
    starts = np.random.default_rng(0).integers(10, 40, 40)
    tokens = (starts[:, None] + np.arange(24)[None]).astype(np.int32)
    return OwnTexts(tokens, np.full(40, 1, np.int32), np.full(40, 24, np.int32))


def ignore(done, total):
    pass


def train(model, folder, plan=PLAN, progress=ignore, vocab_size=None):
    texts = counting_texts()
    hidden = hidden_states(*model, texts, ignore)
    return train_medusa(*model, texts, hidden, vocab_size or model[0].config.vocab_size, plan, folder, progress)


def test_heads_learn_what_can_be_known(model, tmp_path):
    trained = train(model, tmp_path)
    assert trained.losses.shape == (50, 2)
    hidden = hidden_states(*model, counting_texts(), ignore)
    tokens, is_own, hidden = map(jnp.asarray, learned_positions(counting_texts(), hidden, PLAN.depth + 1))
    guesses = MedusaGuesses(model[0], np.arange(model[0].config.vocab_size, dtype=np.int32))
    before, after = (
        guesses.loss(weights, model[1], tokens, is_own, hidden)[1]
        for weights in (jax.tree.map(np.zeros_like, trained.weights), trained.weights)
    )
    logprobs = jax.nn.log_softmax(pure.logits(*model, hidden))
    entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)[:, :-1]
    for head in range(PLAN.depth):
        is_guessed = is_own[:, 1:].at[:, : 1 + head].set(False)
        least = entropy[is_guessed].mean()  # the loss of a head that knew what the model will
        assert least < after[head] < before[head] - 0.2 * (before[head] - least)
    assert all(0 < sum(shares) <= 1 for shares in trained.shares)
    assert trained.bigram_share == 1.0, "the next token follows from the one before"


def test_untrained_heads_have_the_loss_of_the_models_head_against_its_later_probabilities(model):
    """Written out for one text and the even tokens: head k sees the state two and k tokens before what it guesses."""
    settings, params = model
    size, vocabulary = settings.config.d_model, np.arange(0, settings.config.vocab_size, 2, dtype=np.int32)
    heads = {"block": jnp.zeros((2, size, size)), "bias": jnp.zeros((2, size))}
    tokens, is_own = jnp.int32([[5, 9, 7, 30, 2, 8, 1]]), jnp.asarray([[False, False, False, True, True, True, True]])
    hidden, _ = pure.forward(settings, params, tokens)
    guesses = MedusaGuesses(settings, vocabulary)
    total, by_head = guesses.loss(heads, params, tokens, is_own, hidden)
    raw = pure.logits(settings, params, hidden)[0]
    logprobs = jax.nn.log_softmax(raw[:, vocabulary])
    wanted = np.exp(logprobs)
    expected = [
        -np.mean([wanted[place - 1] @ logprobs[place - 2 - head] for place in range(3, 7)]) for head in range(2)
    ]
    np.testing.assert_allclose(by_head, expected, rtol=1e-5)
    np.testing.assert_allclose(total, DECAY * expected[0] + DECAY**2 * expected[1], rtol=1e-5)
    counts, totals = guesses.rank_counts(heads, params, tokens, is_own, hidden)
    places = [[(place - 2 - head, tokens[0, place]) for place in range(3, 7)] for head in range(2)]
    ranks = [[int(np.sum(raw[seen] > raw[seen, token])) for seen, token in of_head] for of_head in places]
    assert counts.tolist() == [[row.count(rank) for rank in range(counts.shape[1])] for row in ranks]
    assert totals.tolist() == [4, 4]


def test_the_most_frequent_tokens_are_learned():
    texts = OwnTexts(np.int32([[7, 3, 3, 5], [7, 3, 5, 4]]), np.full(2, 1, np.int32), np.full(2, 4, np.int32))
    assert frequent_tokens(texts, 10, 2).tolist() == [3, 5], "7 stands in prompts alone"


@pytest.mark.thorough
def test_an_interrupted_run_ends_like_another(model, tmp_path):
    plan = replace(PLAN, max_steps=SAVED_EVERY + 3)
    whole = train(model, tmp_path / "whole", plan)

    class Interrupted(Exception):
        pass

    def stop(done, total):
        if done == SAVED_EVERY + 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(model, tmp_path / "two", plan, stop)
    with patch.object(TrainingState, "save", lambda self, folder, key: None):
        again = train(model, tmp_path / "two", plan)
    assert len(again.losses) == len(whole.losses)
    np.testing.assert_array_equal(again.losses[:SAVED_EVERY], whole.losses[:SAVED_EVERY])
    np.testing.assert_allclose(again.losses, whole.losses, rtol=1e-5)
    np.testing.assert_allclose(again.weights["block"], whole.weights["block"], atol=1e-5)
    with pytest.raises(ConfigError, match="has a training that was interrupted"):
        train(model, tmp_path / "two", replace(plan, depth=3))
    with pytest.raises(ConfigError, match=r"'method': 'medusa', .* instead of .*'draft_vocab_size': 64"):
        train(model, tmp_path / "two", plan, vocab_size=64)


def test_texts_are_generated_once(tmp_path):
    llm, seen = tiny_engine("llama3"), list[int]()
    sizes = {"num_tokens": 1500, "text_len": 24, "temperature": 1.0, "seed": 0}
    texts = own_texts(llm, tmp_path, None, **sizes, progress=seen.append)
    assert 1500 <= texts.is_generated.sum() < 1500 + 24
    assert seen[-1] >= texts.is_generated.sum()
    assert len({tuple(text) for text in texts.tokens.tolist()}) == len(texts.tokens)
    again = own_texts(llm, tmp_path, None, **sizes, progress=lambda done: None)
    np.testing.assert_array_equal(again.tokens, texts.tokens)
    other = tmp_path / "prompted"
    other.mkdir()
    prompted = own_texts(llm, other, [[3, 4, 5]], **sizes | {"num_tokens": 1}, progress=lambda done: None)
    assert prompted.tokens[:, :3].tolist() == [[3, 4, 5]] * len(prompted.tokens)
    assert not prompted.is_generated[:, :3].any()
    with pytest.raises(ConfigError, match=r'"text_len": 24.* instead of .*"text_len": 32.*: empty the folder'):
        own_texts(llm, tmp_path, None, **sizes | {"text_len": 32}, progress=lambda done: None)
    for name in ("revision", "tokenizer"):
        other = LLM.from_parts(replace(llm.config, **{name: "other"}), llm.parts)
        with pytest.raises(ConfigError, match=f'"{name}": null.* instead of .*"{name}": "other"'):
            own_texts(other, tmp_path, None, **sizes, progress=lambda done: None)
    (tmp_path / FILE).write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="cannot be read"):
        own_texts(llm, tmp_path, None, **sizes, progress=lambda done: None)
