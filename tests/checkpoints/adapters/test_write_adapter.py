"""What is written is read again as it was, whatever its ranks and modules."""

import json

import numpy as np
import pytest

from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.adapters.write_adapter import write_adapter
from tests.checkpoints.adapters.adapter_files import NUM_LAYERS, SHAPES


def random_adapter(ranks):
    """ranks: by layer and matrix."""
    rng = np.random.default_rng(3)
    return AdapterWeights(
        {
            (layer, part): LowRank(
                rng.standard_normal((rank, SHAPES[part][1]), np.float32),
                rng.standard_normal((SHAPES[part][0], rank), np.float32),
            )
            for (layer, part), rank in ranks.items()
        }
    )


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize(
    ("ranks", "targets"),
    [
        ({(layer, part): 4 for layer in range(NUM_LAYERS) for part in SHAPES}, "down_proj gate_proj k_proj"),
        ({(layer, part): 2 for layer in (0, 2) for part in "qo"}, "o_proj q_proj"),
        ({(layer, part): 1 + layer for layer in (1, 2) for part in "qo"}, "o_proj q_proj"),
        ({(0, "q"): 8, (1, "down"): 3}, "model.layers.0.self_attn.q_proj model.layers.1.mlp.down_proj"),
    ],
)
def test_an_adapter_comes_back(ranks, targets, scale, tmp_path):
    adapter = random_adapter(ranks)
    write_adapter(tmp_path, adapter, scale=scale, base="org/model")
    found = read_adapter(str(tmp_path), SHAPES, NUM_LAYERS, 8)
    assert found.matrices.keys() == adapter.matrices.keys()
    for key, pair in adapter.matrices.items():
        np.testing.assert_array_equal(found.matrices[key].a, pair.a)
        np.testing.assert_allclose(found.matrices[key].b, pair.b, rtol=3e-7)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert set(targets.split()) <= set(config["target_modules"])
    assert (config["r"], config["base_model_name_or_path"]) == (max(ranks.values()), "org/model")
