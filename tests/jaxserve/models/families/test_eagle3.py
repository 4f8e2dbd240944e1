"""Which layers of the target an EAGLE-3 draft reads, by the two keys of its config.json."""

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.models.families.eagle3 import from_hf, to_hf

TAPS = "eagle_aux_hidden_state_layer_ids"
CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize(
    ("keys", "inputs"),
    [
        ({}, None),
        ({TAPS: [2, 18, 33]}, (2, 18, 33)),
        ({"eagle_config": {TAPS: [1, 17, 32]}}, (2, 18, 33)),  # SpecForge's, of 36 layers: outputs
        ({TAPS: None, "eagle_config": {TAPS: [1, 17, 32]}}, (2, 18, 33)),
        ({TAPS: [2, 18, 33], "eagle_config": {TAPS: [1, 17, 32]}}, (2, 18, 33)),
    ],
)
def test_taps_are_layers_whose_inputs_are_read(keys, inputs):
    config = from_hf(CONFIG | keys)
    assert config.tap_layers == inputs
    assert from_hf(to_hf(config)) == config


def test_taps_that_are_no_layers_are_refused():
    for keys in ({TAPS: [1, 1, 2]}, {"eagle_config": {TAPS: [1, 2]}}, {"eagle_config": {TAPS: [-1, 1, 2]}}):
        with pytest.raises(ConfigError, match=f"{TAPS}=.* must list 3 different layers"):
            from_hf(CONFIG | keys)
