"""Opening distinguishes Hugging Face folders from GGUF files and reads the configuration of each."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_index import write_index
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from tests.checkpoints import gguf_builder as build

WEIGHT = np.ones((2, 32), np.float32)


def test_a_gguf_file_brings_its_metadata(tmp_path):
    path = build.write(tmp_path / "m.gguf", [build.pack("w", WEIGHT)], {"general.architecture": "llama"})
    with open_checkpoint(resolve(str(path))) as checkpoint:
        assert (checkpoint.spelling, checkpoint.folder, checkpoint.config) == ("gguf", tmp_path, {})
        assert checkpoint.metadata == {"general.architecture": "llama"}
        np.testing.assert_array_equal(checkpoint.file.read_rows("w", 0, 2), WEIGHT)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_folder_brings_its_config(is_sharded, tmp_path):
    name = "model-1.safetensors" if is_sharded else "model.safetensors"
    save_file({"w": WEIGHT}, tmp_path / name)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    if is_sharded:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with open_checkpoint(resolve(str(tmp_path))) as checkpoint:
        assert (checkpoint.spelling, checkpoint.config) == ("hf", {"model_type": "llama"})
        assert list(checkpoint.tensors) == ["w"]


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (None, "has no config.json next to model.safetensors"),
        ("[]", "config.json: must hold a JSON object"),
        ("{", "config.json: is not valid JSON"),
        (" " * 4_000_001, "config.json: is 4000001 bytes long; at most 4000000 are read"),
        ('{"a":' * 100_000, "config.json: holds too many nested values"),
        ('{"a":' + " " * 3_000_000 + "[" * 150_000, "config.json: is nested too deeply"),
    ],
)
def test_a_folder_without_a_usable_config_is_refused(config, fault, tmp_path):
    save_file({"w": WEIGHT}, tmp_path / "model.safetensors")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError) as refusal:
        open_checkpoint(resolve(str(tmp_path)))
    assert str(refusal.value).startswith(str(tmp_path))
    assert fault in str(refusal.value)


def test_an_orbax_folder_brings_its_config_and_its_leaves(tmp_path):
    (tmp_path / "orbax").mkdir()
    write_index(tmp_path / "orbax", {"outside": {"embed": ((3, 2), "float32")}})
    with pytest.raises(CheckpointError, match=r"has no config\.json next to orbax"):
        open_checkpoint(resolve(str(tmp_path)))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with open_checkpoint(resolve(str(tmp_path))) as checkpoint:
        assert (checkpoint.spelling, checkpoint.config) == ("orbax", {"model_type": "llama"})
        assert [info.shape for info in checkpoint.tensors.values()] == [(3, 2)]
