"""A conversion that was killed continues where it stopped, and ends with the files of an uninterrupted one."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from checkpoints.formats.orbax_folder import OrbaxFile
from jaxserve.cli.convert import run
from tests.repository.modules import ROOT
from tests.support.golden_data import checkpoint

# The command, slowed down so that it can be killed in the middle of a file or a part.
SLOWLY = """
import sys, time
from checkpoints.loading import leaf_reader
read = leaf_reader.TensorLeaves.read
def slowly(*args):
    time.sleep(0.05)
    return read(*args)
leaf_reader.TensorLeaves.read = slowly
from jaxserve.cli.convert import run
sys.exit(run(sys.argv[1:]))
"""


def killed_after(num_files, pattern, folder, args):
    """Runs the command until so many files match the pattern, then kills it."""
    child = subprocess.Popen([sys.executable, "-c", SLOWLY, *args], env={**os.environ, "PYTHONPATH": str(ROOT)})
    limit_s = time.monotonic() + 120
    while len(list(folder.glob(pattern))) < num_files and time.monotonic() < limit_s:
        assert child.poll() is None, "the command ended before it could be killed"
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def stamps(folder, pattern):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob(pattern)}


@pytest.mark.parametrize("num_files", [1, 4])
def test_finished_shards_are_kept_and_the_folder_ends_byte_for_byte_the_same(num_files, tmp_path):
    args = [str(checkpoint("llama3")), str(tmp_path / "cut"), "--quiet", "--max-shard-size", "50KB"]
    killed_after(num_files, "model-*.safetensors", tmp_path / "cut", args)
    before = stamps(tmp_path / "cut", "model-*.safetensors")
    run(args)
    after = stamps(tmp_path / "cut", "model-*.safetensors")
    # The manifest may not list the last one yet.
    assert num_files <= len(before) < len(after)
    assert sum(after[name] == before[name] for name in before) >= len(before) - 1
    run([args[0], str(tmp_path / "whole"), *args[2:]])
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "cut").iterdir())
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_finished_orbax_parts_are_kept_and_the_tree_ends_bit_for_bit_the_same(tmp_path):
    args = [str(checkpoint("llama3")), str(tmp_path / "cut"), "--quiet", "--format", "orbax"]
    killed_after(2, "orbax/layer-?????", tmp_path / "cut", args)
    before = stamps(tmp_path / "cut", "orbax/*")
    run(args)
    after = stamps(tmp_path / "cut", "orbax/*")
    for part in ("outside", "layer-00000"):
        assert after[part] == before[part]
    run([args[0], str(tmp_path / "whole"), *args[2:]])
    ours, theirs = (OrbaxFile(tmp_path / name / "orbax") for name in ("cut", "whole"))
    assert ours.tensors == theirs.tensors
    for name, info in theirs.tensors.items():
        a, b = (file.read_rows(name, 0, info.num_rows) for file in (ours, theirs))
        np.testing.assert_array_equal(a, b, err_msg=name)
    assert sorted(path.name for path in ours.root.iterdir()) == sorted(path.name for path in theirs.root.iterdir())
