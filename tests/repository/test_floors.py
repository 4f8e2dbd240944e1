"""Imports follow the floors of the packages; planted violations show that the check can fail."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.modules import PACKAGES, ROOT, modules

LINTER = Path(sys.executable).with_name("lint-imports")

VIOLATIONS = {
    "The three packages": ("checkpoints/planted.py", "import jaxserve.core"),
    "The floors of jaxserve": ("jaxserve/kv/planted.py", "def late():\n    import jaxserve.sampling"),
    "Layers of jaxserve.engine": ("jaxserve/engine/serving/planted.py", "import jaxserve.engine.build.build"),
    "Layers of jaxserve.scheduler": (
        "jaxserve/scheduler/memory/planted.py",
        "import jaxserve.scheduler.step.start_waiting",
    ),
    "Layers of jaxserve.runner": ("jaxserve/runner/step/planted.py", "import jaxserve.runner.runner"),
    "Layers of jaxserve.models": ("jaxserve/models/config/planted.py", "import jaxserve.models.context"),
    "Layers of jaxserve.server": ("jaxserve/server/http/planted.py", "import jaxserve.server.routes.live"),
    "The server and batch files": ("jaxserve/batch/planted.py", "import jaxserve.scheduler.state"),
    "Layers of jaxserve.bench": ("jaxserve/bench/prefix/planted.py", "import jaxserve.bench.serving.options"),
    "Layers of jaxserve.core": ("jaxserve/core/options/planted.py", "import jaxserve.core.sequence"),
    "Layers of checkpoints": ("checkpoints/formats/planted.py", "import checkpoints.sources"),
    "Kernels are independent": ("pallas_kernels/page_ops/planted.py", "import pallas_kernels.paged_attention"),
    "Attention back ends": (
        "pallas_kernels/paged_attention/xla/planted.py",
        "import pallas_kernels.paged_attention.reference",
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages and their import contracts."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_contracts(folder: Path) -> list[str]:
    environment = {"PYTHONPATH": str(folder)}
    result = subprocess.run([LINTER, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)
    broken = [line.strip() for line in result.stdout.splitlines() if re.search(r" BROKEN( \(|$)", line)]
    assert result.returncode == (1 if broken else 0), result.stdout + result.stderr
    return broken


def test_imports_go_downwards_only(copy):
    assert broken_contracts(copy) == []


def test_a_planted_violation_breaks_its_contract(copy):
    for path, statement in VIOLATIONS.values():
        (copy / path).write_text(f"{statement}\n")
    broken = broken_contracts(copy)
    assert len(broken) == len(VIOLATIONS)
    for contract, line in zip(VIOLATIONS, broken, strict=True):
        assert line.startswith(contract)


def test_pallas_stays_inside_its_package():
    above = [module for module in modules() if not module.name.startswith("pallas_kernels")]
    assert not [module.name for module in above if "jax.experimental.pallas" in module.path.read_text()]
    assert not [module.name for module in above if "from jax.experimental import pallas" in module.path.read_text()]
