"""Every key of an adapter's configuration is honored, has no effect, or is refused by name."""

import json

import pytest

from checkpoints.adapters.adapter_config import read_adapter_config
from checkpoints.errors import CheckpointError
from tests.checkpoints.adapters.adapter_files import CONFIG

# What PEFT 0.21 writes for LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]).
NEUTRAL = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "arrow_config": None,
    "auto_mapping": None,
    "base_model_name_or_path": "org/model",
    "corda_config": None,
    "ensure_weight_tying": False,
    "eva_config": None,
    "exclude_modules": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layer_replication": None,
    "layers_pattern": None,
    "layers_to_transform": None,
    "loftq_config": {},
    "lora_bias": False,
    "lora_dropout": 0.1,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "rank_pattern": {},
    "revision": None,
    "target_parameters": None,
    "task_type": "CAUSAL_LM",
    "trainable_token_indices": None,
    "use_dora": False,
    "use_qalora": False,
    "use_rslora": False,
}


def read(folder, **changes):
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    return read_adapter_config(folder)


def test_neutral_values_change_nothing(tmp_path):
    assert read(tmp_path, **NEUTRAL, a_future_key=None) == read(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "LOHA"),
        ("task_type", "SEQ_CLS"),
        ("bias", "lora_only"),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", "loftq"),
        ("init_lora_weights", {}),
        ("modules_to_save", ["lm_head"]),
        ("use_dora", True),
        ("lora_bias", True),
        ("fan_in_fan_out", True),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["experts.down"]),
        ("layer_replication", [[0, 2]]),
        ("megatron_config", {"a": 1}),
        ("use_qalora", True),
        ("alora_invocation_tokens", [1, 2]),
        ("a_future_key", "x"),
        ("layers_pattern", ["blocks"]),
        ("layers_pattern", 5),
        ("layers_to_transform", [-1]),
        ("layers_to_transform", "all"),
        ("target_modules", []),
        ("target_modules", [1]),
        ("exclude_modules", 5),
        ("r", 0),
        ("r", True),
        ("r", 2.5),
        ("rank_pattern", {"q_proj": 0}),
        ("rank_pattern", ["q_proj"]),
        ("alpha_pattern", {"q_proj": "8"}),
        ("lora_alpha", float("nan")),
        ("lora_alpha", 10**400),
        ("use_rslora", "yes"),
    ],
)
def test_what_is_not_honored_is_refused_by_name(key, value, tmp_path):
    with pytest.raises(CheckpointError, match=rf"adapter_config\.json: {key}=") as refusal:
        read(tmp_path, **{key: value})
    assert len(str(refusal.value)) < 600


def test_an_expression_does_not_go_with_layers(tmp_path):
    with pytest.raises(CheckpointError, match="layers_to_transform"):
        read(tmp_path, target_modules=".*q_proj", layers_to_transform=[1])


def test_a_file_that_is_too_large_is_not_parsed(tmp_path):
    with pytest.raises(CheckpointError, match="at most 1000000 are read"):
        read(tmp_path, auto_mapping="x" * 1_000_000)
