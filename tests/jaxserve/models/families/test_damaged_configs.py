"""A damaged config.json is read or refused with a `ConfigError`, before anything of a claimed size is built."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.errors import ConfigError
from jaxserve.models.families import registry
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.runner.load_weights import read_config
from tests.support.damaged_json import damaged, refusals

NUM_CASES = 60
TENSORS = SimpleNamespace(tensors={str(i): SimpleNamespace(shape=(8, 8)) for i in range(900)}, metadata={})
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("name", ["smollm2-135m", "mistral-7b", "qwen3-0.6b", "phi-4", "gemma-2-2b", "gemma-3-270m"])
def test_configurations_of_all_families(name):
    config = {"eos_token_id": [1, 2], **registry.to_hf(SHAPES[name])}

    def read(rng):
        scaling = rng.choice([{"rope_type": "llama3", **LLAMA3}, {"rope_type": "yarn", **YARN}, None])
        found = damaged(rng, config | {"rope_scaling": scaling})
        read_config(Checkpoint("hf", Path("model"), Path("model/model.safetensors"), found, TENSORS))

    assert refusals(read, ConfigError, NUM_CASES) > 0


@pytest.mark.parametrize(
    "damage",
    [
        {"model_type": ["gemma3_text"]},
        {"eos_token_id": {"a": 1}},
        {"eos_token_id": [True]},
        {"layer_types": 5},
        {"layer_types": [["full_attention"]]},
        {"rope_parameters": {"full_attention": 5}},
    ],
)
def test_values_of_another_kind_are_named(damage):
    (name,) = damage
    with pytest.raises(ConfigError, match=f"{name}|architecture|full_attention"):
        registry.from_hf(registry.to_hf(SHAPES["gemma-3-270m"]) | damage)
