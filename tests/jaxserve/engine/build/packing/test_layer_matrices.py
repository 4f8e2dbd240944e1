"""What the layers' matrices have is what counts: not parts of a file that the model leaves out."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxserve.cli.quantize import run as quantize
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing.layer_matrices import layer_matrices
from tests.jaxserve.engine.build.packing.test_fp8_products import CPU, packing_on
from tests.support.golden_data import checkpoint

FAMILY = "gemma3"
VISION = "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a model with a vision tower that its recipe left as it is."""
    folder = tmp_path_factory.mktemp("vision") / "model"
    assert quantize([str(checkpoint(FAMILY)), str(folder), "--scheme", "w8a8", "--quiet"]) == 0
    file = folder / "model.safetensors"
    save_file(load_file(file) | {VISION: np.ones((8, 8), np.float32)}, file)
    return folder


def test_a_vision_tower_is_none_of_the_layers(folder):
    with open_model(EngineConfig.create(str(folder))) as source:
        names = layer_matrices(source.checkpoint, source.model)
        assert VISION in source.checkpoint.tensors
        assert VISION not in names
        assert len(names) == 7 * source.model.num_layers


@pytest.mark.parametrize("quantization", ["auto", "packed", "w8a8"])
def test_rows_of_codes_stay_as_they_are_next_to_a_vision_tower(folder, quantization):
    packing = packing_on(CPU, folder, quantization)
    assert packing.layers.name == "w8a8"
    assert not packing.decoded


def test_a_layer_without_codes_makes_the_file_one_of_several_forms(folder, tmp_path):
    for name in "config.json", "tokenizer.json":
        if (folder / name).is_file():
            (tmp_path / name).write_bytes((folder / name).read_bytes())
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.endswith("0.mlp.down_proj.weight"))
    scale = tensors.pop(f"{name}_scale")
    tensors[name] = tensors[name].astype(np.float32) * scale
    save_file(tensors, tmp_path / "model.safetensors")
    assert packing_on(CPU, tmp_path, "auto").layers is None
