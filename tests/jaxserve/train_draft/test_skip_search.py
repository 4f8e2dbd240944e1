"""Skipped layers are found by what the model says without them, in at most 60 evaluations."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import pure
from jaxserve.train_draft.own_texts import own_texts
from jaxserve.train_draft.skip_search import MAX_EVALUATIONS, find_skips
from tests.support.tiny_engines import tiny_engine


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A model, its weights and its texts."""
    llm, folder = tiny_engine("gemma3"), tmp_path_factory.mktemp("texts")
    texts = own_texts(llm, folder, None, num_tokens=300, text_len=24, temperature=1, seed=0, progress=lambda done: None)
    few = replace(texts, tokens=texts.tokens[:6], starts=texts.starts[:6], ends=texts.ends[:6])
    return llm.parts.runner.settings.model, llm.parts.runner.params, few


@pytest.mark.thorough
def test_agreement_is_that_of_the_model_without_these_layers(own):
    """Against weights whose outputs are set to zero by hand."""
    settings, params, texts = own
    seen = list[int]()
    found = find_skips(settings, params, texts, 4, lambda done, total: seen.append(done))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) <= MAX_EVALUATIONS
    for one in found:
        assert len(one.skipped) < settings.config.num_layers
        layers = dict(params["layers"])
        for number in one.skipped:
            row = settings.config.layer_table[number]
            name = settings.config.stacks[row.stack].name
            zero = {
                key: tuple(jnp.zeros_like(w) if i == row.index_in_stack else w for i, w in enumerate(layers[name][key]))
                for key in ("o", "down")
            }
            layers[name] = layers[name] | zero
        tokens = jnp.asarray(texts.tokens)
        likeliest = [
            np.asarray(pure.logits(settings, weights, pure.forward(settings, weights, tokens)[0])).argmax(-1)
            for weights in (params, params | {"layers": layers})
        ]
        before_own = texts.is_generated[:, 1:]
        same = (likeliest[0] == likeliest[1])[:, :-1][before_own].mean()
        assert one.agreement == pytest.approx(same)
        cost = 1 - len(one.skipped) / settings.config.num_layers
        assert one.speed == pytest.approx(sum(same**n for n in range(5)) / (1 + 4 * cost))


def test_a_layer_that_adds_nothing_is_skipped_first(own):
    settings, params, texts = own
    row = settings.config.layer_table[1]
    name = settings.config.stacks[row.stack].name

    def without(leaf):
        return tuple(jnp.zeros_like(w) if i == row.index_in_stack else w for i, w in enumerate(leaf))

    stack = params["layers"][name]
    changed = stack | {key: without(stack[key]) for key in ("o", "down")}
    found = find_skips(settings, params | {"layers": params["layers"] | {name: changed}}, texts, 4, lambda *_: None)
    assert found[0].skipped == (1,)
    assert found[0].agreement == 1
    assert found[0].speed > 1
    assert jax.tree.all(jax.tree.map(lambda a: bool(jnp.isfinite(a).all()), params)), "the weights are as they were"
