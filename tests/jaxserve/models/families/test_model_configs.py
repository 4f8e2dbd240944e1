"""Configurations: the layer table, the published sizes of named shapes, the rejection of unknown keys."""

import json
import math
from itertools import pairwise

import jax
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models.families import registry
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.params import declare, is_spec
from tests.support.golden_data import FAMILIES, checkpoint

# Parameters as published (tied embeddings counted once).
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-3-medium-4k": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_shapes_have_the_published_number_of_parameters(name):
    config = SHAPES[name]
    specs = jax.tree.leaves(declare(config, make_mesh(1), "bfloat16"), is_leaf=is_spec)
    padding = -config.vocab_size % 128 * config.d_model * (1 if config.is_tied else 2)
    assert sum(math.prod(s.shape) for s in specs) - padding == PUBLISHED[name]


@pytest.mark.parametrize("config", SHAPES.values(), ids=lambda c: f"{c.family}-{c.num_layers}")
def test_every_layer_has_its_own_place_in_weights_and_pool(config):
    table = config.layer_table
    assert len({(row.stack, row.index_in_stack) for row in table}) == config.num_layers
    assert len({(row.kind, row.group, row.index_in_group) for row in table}) == config.num_layers
    for row in table:
        assert row.index_in_group < config.layers_per_group
        assert row.group < config.num_groups(row.kind)
    assert config.kv_groups(16).num_groups == sum(config.num_groups(k) for k in range(len(config.kinds)))
    for kind, (start, end) in enumerate(config.group_ranges):
        assert end - start == config.num_groups(kind)
    assert config.group_ranges[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(config.group_ranges))


def test_gemma_270m_has_five_local_groups_to_one_global():
    groups = SHAPES["gemma-3-270m"].kv_groups(64)
    assert groups.windows == (512,) * 5 + (None,)
    assert SHAPES["gemma-3-270m"].layers_per_group == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_a_configuration_is_used_known_or_refused(family):
    config = json.loads((checkpoint(family) / "config.json").read_text())
    registry.from_hf(config)
    with pytest.raises(ConfigError, match="num_experts_per_layer"):
        registry.from_hf(config | {"num_experts_per_layer": 4})
    with pytest.raises(ConfigError, match="attention_bias"):
        registry.from_hf(config | {"attention_bias": True})


def test_rope_types_that_are_not_built_are_refused():
    config = json.loads((checkpoint("llama3") / "config.json").read_text())
    with pytest.raises(ConfigError, match="dynamic"):
        registry.from_hf(config | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic"}})


def test_old_and_new_spellings_of_rope_are_one():
    config = json.loads((checkpoint("llama3") / "config.json").read_text())
    new = config.pop("rope_parameters")
    old = {"rope_theta": new["rope_theta"], "rope_scaling": {k: v for k, v in new.items() if k != "rope_theta"}}
    assert registry.from_hf(config | old) == registry.from_hf(config | {"rope_parameters": new})
