"""Logits of tiny random checkpoints equal those of transformers, for every mesh and attention back end."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxserve.models import transformer
from jaxserve.models.families import registry
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import ENGINE_FAMILIES, FAMILIES, FOLDER, checkpoint, goldens
from tests.support.naive_loop import NaiveModel

TOLERANCE = 1e-4
WAYS = [(1, "xla"), (2, "xla"), (4, "reference")]
CASES = [(family, *way) for family in FAMILIES for way in (WAYS if family in ENGINE_FAMILIES else WAYS[1:2])]


@pytest.mark.parametrize(("family", "size", "backend"), CASES)
def test_logits_equal_transformers(family, size, backend):
    model = NaiveModel.load(checkpoint(family), tensor_parallel_size=size, backend=backend)
    for golden in goldens(family):
        np.testing.assert_allclose(model.logits(golden.prompt), golden.logits, atol=TOLERANCE)
    if family not in ENGINE_FAMILIES:  # those run greedily through a whole engine
        golden = goldens(family)[1]
        assert model.greedy(golden.prompt, len(golden.greedy)) == golden.greedy


# Gemma 3's golden has a layer pattern that a GGUF header cannot express, Qwen 2's a window longer than this prompt.
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma3"])
def test_logits_from_a_gguf_file_equal_transformers(family, tmp_path):
    model = NaiveModel.load(write_gguf(checkpoint(family), tmp_path / "model.gguf"), backend="xla")
    golden = goldens(family)[1]
    np.testing.assert_allclose(model.logits(golden.prompt), golden.logits, atol=TOLERANCE)


def test_layers_of_two_kinds_may_run_in_turns(monkeypatch):
    """As on a GPU; elsewhere a condition selects each layer's kind."""
    model, golden = NaiveModel.load(checkpoint("gemma2"), backend="xla"), goldens("gemma2")[1]
    turn = transformer.kinds_of_turn(model.config.layer_kinds, "gpu")
    assert len(turn) == 2
    monkeypatch.setattr(transformer, "kinds_of_turn", lambda kinds, platform: turn)
    jax.clear_caches()
    np.testing.assert_allclose(model.logits(golden.prompt), golden.logits, atol=TOLERANCE)
    monkeypatch.setattr(transformer, "kinds_of_turn", lambda kinds, platform: turn[::-1])
    jax.clear_caches()
    assert np.abs(model.logits(golden.prompt) - golden.logits).max() > TOLERANCE, "the control"
    jax.clear_caches()


def test_a_context_within_the_original_one_takes_the_short_factors():
    model = NaiveModel.load(checkpoint("phi3"), backend="xla")
    config = registry.from_hf(json.loads((checkpoint("phi3") / "config.json").read_text()))
    golden = goldens("phi3")[1]
    short = np.load(FOLDER / "phi3" / "goldens.npz")["short17"]
    model.config = config.for_context(32)
    np.testing.assert_allclose(model.logits(golden.prompt), short, atol=TOLERANCE)
    assert np.abs(short - golden.logits).max() > TOLERANCE
    assert config.for_context(33) == config.for_context(config.max_position)


def rope_of(model, **changes):
    return tuple(replace(kind, rope=replace(kind.rope, **changes)) for kind in model.kinds)


FAULTS = {
    "a wrong rope base": ("gemma3", lambda m: {"kinds": rope_of(m, base=9_900.0)}),
    "a window that is longer by one": ("mistral", lambda m: {"kinds": (replace(m.kinds[0], window=21),)}),
    "no attention factor": ("qwen3", lambda m: {"kinds": rope_of(m, attention_factor=1.0)}),
    "no YaRN": ("qwen3", lambda m: {"kinds": rope_of(m, factors=None)}),
    "no q/k norm": ("qwen3", lambda m: {"has_qk_norm": False}),
    "no biases": ("qwen2", lambda m: {"has_qkv_bias": False}),
    "windows on the other layers": ("qwen2", lambda m: {"kinds": (replace(m.kinds[0], window=None), *m.kinds[1:])}),
    "no cap on attention": ("gemma2", lambda m: {"attention_softcap": None}),
    "no cap on logits": ("gemma2", lambda m: {"final_softcap": None}),
    "the whole head rotated": ("phi4", lambda m: {"kinds": rope_of(m, dim=None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_familys_own_feature_is_noticed(fault):
    """Control: the goldens have each feature, and the tolerance is tight enough to see it."""
    family, changes = FAULTS[fault]
    model = NaiveModel.load(checkpoint(family), backend="xla")
    model.config = replace(model.config, **changes(model.config))
    golden = goldens(family)[-1]
    assert np.abs(model.logits(golden.prompt) - golden.logits).max() > TOLERANCE
