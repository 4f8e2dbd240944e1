"""A number of layers that a damaged file claims is held against its tensors before anything is built from it."""

import json
import shutil
import struct

import pytest

from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.core.errors import ConfigError
from jaxserve.runner.load_weights import read_config
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import checkpoint

CLAIMED = 2**31 - 1  # a list with an entry for each would take 16 GiB


def check_refused(path, name):
    with open_checkpoint(resolve(str(path))) as opened, pytest.raises(ConfigError, match=f"{name}={CLAIMED} is more"):
        read_config(opened)


@pytest.mark.parametrize("family", ["llama3", "gemma2"])
def test_of_a_gguf_file(family, tmp_path):
    path = write_gguf(checkpoint(family), tmp_path / "model.gguf")
    raw, key = bytearray(path.read_bytes()), b"block_count"
    at = raw.index(key) + len(key) + 4  # behind the type of the value
    struct.pack_into("<I", raw, at, CLAIMED)
    path.write_bytes(raw)
    check_refused(path, r"\w+\.block_count")


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_of_a_folder(family, tmp_path):
    folder = shutil.copytree(checkpoint(family), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": CLAIMED}))
    check_refused(folder, "num_hidden_layers")
