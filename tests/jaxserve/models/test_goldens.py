"""Logits of tiny random checkpoints equal those of transformers, for every mesh and attention back end."""

import json
from dataclasses import replace

import numpy as np
import pytest

from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models import transformer
from jaxserve.models.config.model_config import Stack
from jaxserve.models.families import registry
from jaxserve.models.layer_loops import Loop, layer_loops
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import load_params, read_config
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import ENGINE_FAMILIES, FAMILIES, FOLDER, checkpoint, goldens
from tests.support.naive_loop import NaiveModel

TOLERANCE = 1e-4
CASES = [
    *((family, 2, "xla") for family in FAMILIES),
    ("llama2", 1, "xla"),
    ("llama3", 4, "reference"),
    ("gemma3", 1, "reference"),
    ("gemma3", 4, "xla"),
]


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
    """As on a GPU, in one loop or in several; elsewhere a condition selects each layer's stack."""
    model, golden = NaiveModel.load(checkpoint("gemma2"), backend="xla"), goldens("gemma2")[1]
    table = model.config.layer_table
    (loop,) = layer_loops(table, table, "gpu")
    begin, end, (one, other) = loop
    several = [Loop(begin, begin + 1, (one,)), Loop(begin + 1, end, (other, one))]
    wrong = [loop._replace(turn=(other, one))]
    for name, loops, is_equal in (("one loop", [loop], True), ("several", several, True), ("control", wrong, False)):
        monkeypatch.setattr(transformer, "layer_loops", lambda *_, loops=loops: loops)
        traced = replace(model, config=replace(model.config, family=name))  # no program of another configuration
        assert (np.abs(traced.logits(golden.prompt) - golden.logits).max() <= TOLERANCE) == is_equal


def test_a_context_within_the_original_one_takes_the_short_factors():
    model = NaiveModel.load(checkpoint("phi3"), backend="xla")
    config = registry.from_hf(json.loads((checkpoint("phi3") / "config.json").read_text()))
    golden = goldens("phi3")[1]
    short = np.load(FOLDER / "phi3" / "goldens.npz")["short17"]
    model.config = config.for_context(32)
    np.testing.assert_allclose(model.logits(golden.prompt), short, atol=TOLERANCE)
    assert np.abs(short - golden.logits).max() > TOLERANCE
    assert config.for_context(33) == config.for_context(config.max_position)


@pytest.mark.thorough
def test_layers_of_one_kind_may_have_several_stacks():
    with open_checkpoint(resolve(str(checkpoint("llama3")))) as opened:
        config = read_config(opened)
        (stack,) = config.stacks
        config = replace(
            config,
            stacks=tuple(Stack(name, stack.kind) for name in ("even", "odd")),
            layer_stacks=tuple(i % 2 for i in range(config.num_layers)),
        )
        mesh = make_mesh(1)
        model = NaiveModel(config, load_params(opened, config, mesh, declare(config, mesh, "float32")), mesh, "xla")
    assert len(config.kinds) == config.kv_groups(16).num_groups == 1
    golden = goldens("llama3")[1]
    np.testing.assert_allclose(model.logits(golden.prompt), golden.logits, atol=TOLERANCE)
    model = replace(model, config=replace(config, layer_stacks=(*config.layer_stacks[1:], 0)))
    assert np.abs(model.logits(golden.prompt) - golden.logits).max() > TOLERANCE, "the control"


def attention_with(**changes):
    """A model whose layers all have other attention."""

    def change(kind):
        return replace(kind, attention=replace(kind.attention, **changes))

    return lambda model: {"config": model.config.map_kinds(change)}


def rope_with(**changes):
    def change(kind):
        rope = replace(kind.attention.rope, **changes)
        return replace(kind, attention=replace(kind.attention, rope=rope))

    return lambda model: {"config": model.config.map_kinds(change)}


def without(*names):
    """A model without some leaves of its layers."""

    def change(model):
        layers = {
            stack: {name: leaf for name, leaf in leaves.items() if name not in names}
            for stack, leaves in model.params["layers"].items()
        }
        return {"params": model.params | {"layers": layers}}

    return change


FAULTS = {
    "a wrong rope base": ("gemma3", rope_with(base=9_900.0)),
    "a window that is longer by one": ("mistral", attention_with(window=21)),
    "no attention factor": ("qwen3", rope_with(attention_factor=1.0)),
    "no YaRN": ("qwen3", rope_with(factors=None)),
    "no q/k norm": ("qwen3", without("q_norm", "k_norm")),
    "no norms after attention and MLP": ("gemma2", without("post_attn_norm", "post_mlp_norm")),
    "no biases": ("qwen2", without("qkv_bias")),
    "no windows": ("qwen2", attention_with(window=None)),
    "no cap on attention": ("gemma2", attention_with(softcap=None)),
    "no cap on logits": ("gemma2", lambda model: {"config": replace(model.config, final_softcap=None)}),
    "the whole head rotated": ("phi4", rope_with(dim=None)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_familys_own_feature_is_noticed(fault):
    """Control: the goldens have each feature, and the tolerance is tight enough to see it."""
    family, changes = FAULTS[fault]
    model = NaiveModel.load(checkpoint(family), backend="xla")
    model = replace(model, **changes(model))
    golden = goldens(family)[-1]
    assert np.abs(model.logits(golden.prompt) - golden.logits).max() > TOLERANCE
