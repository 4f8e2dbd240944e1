"""A model in the hub's cache loads with HF_HUB_OFFLINE=1, by its id alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = """
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
with open_checkpoint(resolve("someone/tiny-llama")) as checkpoint:
    print(checkpoint.spelling, checkpoint.config["model_type"], len(checkpoint.tensors))
"""


def cached_model(cache: Path) -> None:
    """A snapshot in the folder layout of the hub's client."""
    repo = cache / "hub" / "models--someone--tiny-llama"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    shutil.copytree(
        ROOT / "tests" / "goldens" / "llama3", repo / "snapshots" / COMMIT, ignore=shutil.ignore_patterns("*.npz")
    )


INSPECT = """
import sys
from jaxserve.cli.inspect import run
sys.exit(run(["someone/tiny-llama", "--no-device"]))
"""


def load(cache: Path, code: str = CODE, **variables: str) -> subprocess.CompletedProcess:
    env = os.environ | (variables or {"HF_HUB_OFFLINE": "1"}) | {"HF_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    env.pop("HF_HUB_CACHE", None)
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def test_a_cached_model_loads_offline(tmp_path):
    cached_model(tmp_path)
    done = load(tmp_path)
    assert done.stdout.split() == ["hf", "llama", "29"], done.stderr


def test_a_model_that_is_not_cached_is_refused(tmp_path):
    """Control: the same code with an empty cache."""
    assert "HF_HUB_OFFLINE forbids fetching it" in load(tmp_path).stderr


def test_a_cached_model_is_inspected_without_a_network(tmp_path):
    cached_model(tmp_path)
    done = load(tmp_path, INSPECT, HF_ENDPOINT="http://127.0.0.1:9", JAX_PLATFORMS="cpu")
    assert "llama" in done.stdout, done.stderr
